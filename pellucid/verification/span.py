"""The steps from recorded values to one value, and what they give in other arithmetic or with a mistake.

Arrays in which every operation is rounded to a type are what a program computes that never leaves 16 bits. An
operation's own forward runs on them, as on the arrays that carry a bound, so that the low-precision form of
an operation is never written a second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape
from pellucid.reference.tracked_array import TrackedArray, plain
from pellucid.verification.foreign_values import Recording
from pellucid.verification.mistakes import Variant
from pellucid.verification.rounding import MIN_CELLS, round_to

CHUNK = 16
"""How many terms a sum in 16 bits adds before it is rounded; kernels that accumulate so add a few at once."""


class RoundedArray(TrackedArray):
    """An array whose results are rounded; sums are carried in float32 and rounded once, or with `accumulates`
    rounded while they are carried."""

    def __init__(self, value: Any, type: Dtype, accumulates: bool = False) -> None:
        self.value: Array = np.asarray(value)
        self.type, self.accumulates = type, accumulates

    def _round(self, value: Any) -> RoundedArray:
        value = np.asarray(value)
        made = round_to(value, self.type) if value.dtype.kind == "f" else value
        return RoundedArray(made, self.type, self.accumulates)

    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        value = self.compute_ufunc(ufunc, inputs)
        return value if value.dtype == bool else self._round(value)

    @classmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> RoundedArray:
        kind = _first(yes, no, condition)
        return kind._round(np.where(plain(condition), plain(yes), plain(no)))

    @classmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> RoundedArray:
        if isinstance(source, tuple | list):
            kind = _first(*source)
            return RoundedArray(function([plain(x) for x in source]), kind.type, kind.accumulates)
        return RoundedArray(function(source.value), source.type, source.accumulates)

    def astype(self, dtype: Any) -> RoundedArray:
        return RoundedArray(self.value.astype(dtype), self.type, self.accumulates)

    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> RoundedArray:
        if function is np.max or not self.accumulates or axis is None:
            return self._round(function(self.value, axis=axis, keepdims=keepdims))
        total: Any = 0.0
        for start in range(0, self.shape[axis], CHUNK):
            part = np.take(self.value, range(start, min(start + CHUNK, self.shape[axis])), axis=axis)
            total = round_to(total + part.sum(axis=axis, keepdims=keepdims), self.type)
        return self._round(total / self.shape[axis] if function is np.mean else total)

    def cumsum(self) -> RoundedArray:
        return self._round(np.cumsum(self.value, axis=-1))

    @classmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> RoundedArray:
        kind, values = _first(*arrays), [plain(x) for x in arrays]
        terms, _, result = spec.partition("->")
        lengths = {
            letter: length
            for term, x in zip(terms.split(","), values, strict=True)
            for letter, length in zip(term, x.shape, strict=True)
        }
        summed = [letter for letter in lengths if letter not in result]
        if not kind.accumulates or not summed:
            return kind._round(np.einsum(spec, *values, optimize=len(values) > 1))
        along = max(summed, key=lambda letter: lengths[letter])
        total: Any = 0.0
        for start in range(0, lengths[along], CHUNK):
            parts = [
                x[tuple(slice(start, start + CHUNK) if letter == along else slice(None) for letter in term)]
                for term, x in zip(terms.split(","), values, strict=True)
            ]
            total = round_to(total + np.einsum(spec, *parts, optimize=len(parts) > 1), kind.type)
        return kind._round(total)


def _first(*arrays: Any) -> RoundedArray:
    return next(x for x in arrays if isinstance(x, RoundedArray))


def compute_rounded(step: Step, inputs: Sequence[Array], dtype: Dtype, accumulates: bool = False) -> Array:
    """Returns a step in which every operation is rounded to the type."""
    held = [RoundedArray(x, dtype, accumulates) if x.dtype.kind == "f" else x for x in inputs]
    return np.asarray(plain(step.op.forward(*held, **step.attrs)))


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
