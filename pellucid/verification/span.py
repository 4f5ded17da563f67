"""The steps from recorded values to one value, and what they give in other arithmetic or with a mistake."""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape
from pellucid.verification.foreign_values import Recording
from pellucid.verification.mistakes import Variant
from pellucid.verification.rounding import MIN_CELLS, round_to

Compute = Callable[[Step, Sequence[Array]], Array]
"""Computes a step from the values of its inputs."""


def cut_span(tape: Tape, name: str, recorded: Recording, variant: Variant | None = None) -> Tape:
    """Returns the program from the recorded values to one value, with a mistake in it. Its values are those
    of `tape`, and `recorded` has the names that `tape.resolve` gives."""
    variant = variant or Variant()
    steps, values = {**tape.steps, **variant.steps}, {**variant.tables, **tape.values}
    needed = {name}
    for read in reversed(values):
        if read in needed and read in steps and (read == name or read not in recorded):
            needed.update(steps[read].inputs)
    span = Tape(tape.dtype)
    span.about, span.aliases = tape.about, {}
    for read in values:
        if read in needed:
            span.values[read], span.roles[read] = values[read], tape.roles.get(read, "leaf")
            if read in steps and (read == name or read not in recorded):
                span.steps[read] = steps[read]
    return span


def run_span(span: Tape, recorded: Recording, compute: Compute | None = None) -> dict[str, Array]:
    """Returns every value of a span, its steps computed in float64 unless `compute` says otherwise."""
    compute = compute or compute_exactly
    values = dict(span.values)
    values |= {read: recorded[read].value for read in values if read in recorded}
    with np.errstate(all="ignore"):
        for name, step in span.steps.items():
            values[name] = compute(step, [values[read] for read in step.inputs])
    return values


def compute_exactly(step: Step, inputs: Sequence[Array]) -> Array:
    return np.asarray(step.op.forward(*inputs, **step.attrs))


def compute_in_float32(step: Step, inputs: Sequence[Array]) -> Array:
    """Returns the step in float32, as libraries compute it."""
    single = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in inputs]
    made = np.asarray(step.op.forward(*single, **step.attrs))
    return made.astype(np.float64) if made.dtype.kind == "f" else made


def round_each_step(dtype: Dtype, keep_statistics: bool = False) -> Compute:
    """Returns float32 arithmetic in which each step is rounded to a type; with `keep_statistics` all but the
    means and norms of a row, which libraries hold in float32."""

    def compute(step: Step, inputs: Sequence[Array]) -> Array:
        made = compute_in_float32(step, inputs)
        is_statistic = step.op.name in STATISTICS
        return made if made.dtype.kind != "f" or (keep_statistics and is_statistic) else round_to(made, dtype)

    return compute


STATISTICS = ("mean", "rstd")
"""Operations that reduce a row to one number."""


def is_one_norm(span: Tape, name: str) -> bool:
    """Returns whether the span is a norm from what it reads to its result."""
    scope = name.rpartition(".")[0]
    is_inside = all(step.startswith(f"{scope}.") for step in span.steps)
    return is_inside and scope.endswith("norm") and len(span.steps) > 1


def generalize(name: str) -> str:
    """Returns the name for every layer.

    >>> generalize("blocks.3.attn.q")
    'blocks.*.attn.q'
    """
    return re.sub(r"^((?:d\.)?blocks)\.\d+\.", r"\1.*.", name)


def find_kinds(names: Iterable[str], tape: Tape, recorded: Recording) -> list[list[str]]:
    """Returns recorded names by the steps of their spans, of each kind the first and the last: the code of a
    layer is that of the others. Values of a few cells, or that no step computes, are omitted."""
    kinds: dict[object, list[str]] = {}
    for name in dict.fromkeys(names):
        if name in tape.steps and recorded[name].value.size >= MIN_CELLS:
            steps = cut_span(tape, name, recorded).steps.values()
            kind = [
                (generalize(step.name), *map(generalize, step.inputs), repr(step.attrs)) for step in steps
            ]
            kinds.setdefault((recorded[name].type, *kind), []).append(name)
    return [[*dict.fromkeys((found[0], found[-1]))] for found in kinds.values()]


class RoundedProgram:
    """A program whose parameters are read in a narrower type; each is rounded when it is first read."""

    def __init__(self, tape: Tape, dtype: Dtype | None = None) -> None:
        self.tape, self.dtype = tape, dtype
        self.rounded: dict[str, Array] = {}

    def cut(self, name: str, recorded: Recording) -> Tape:
        """Returns the steps from the recorded values to one value."""
        span = cut_span(self.tape, name, recorded)
        if self.dtype is not None:
            for read, role in span.roles.items():
                if role == "param" and read not in recorded:
                    if read not in self.rounded:
                        self.rounded[read] = round_to(span.values[read], self.dtype)
                    span.values[read] = self.rounded[read]
        return span


def measure_misfit(got: Array, wanted: Array) -> tuple[int, float]:
    """Returns how many cells are finite on one side alone, and the largest difference of the others."""
    with np.errstate(all="ignore"):
        is_finite = np.isfinite(got) & np.isfinite(wanted)
        is_same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        apart = np.abs(np.where(is_finite, got - wanted, 0.0)).max(initial=0.0)
        return int((~is_finite & ~is_same).sum()), float(apart)
