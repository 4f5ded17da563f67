"""Recomputes a program in float64 from values that another program recorded, with bounds on rounding."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.dtypes import BY_NAME, Dtype
from pellucid.base.errors import TapeError
from pellucid.reference.op import Array, Attrs, Index
from pellucid.reference.tape import Step, Tape
from pellucid.verification.foreign_values import Recording
from pellucid.verification.rounding import SINGLE, Bounded, bound_table, round_to

HELD_NARROW = ("pattern", "powers")
"""The values inside a fused attention kernel that are rounded to the type of the run, for the product with V:
the pattern, or before its division by the sum, e^(score − maximum)."""


class Recomputed(NamedTuple):
    """A value as its recorded inputs give it."""

    value: Bounded
    step: Step | None = None
    """None for a value that no step computes."""
    inputs: Sequence[Any] = ()
    since: str | None = None
    """The recorded value where the span begins, where steps before this one were not recorded."""
    narrow: Array | None = None
    """The same span in float32, rounded at every step that was not recorded, or only where it is stated."""

    def allowed_at(self, index: Index) -> float:
        """Returns the units that rounding may use at one cell, from the terms of that cell alone."""
        if self.step is None:
            return self.value.allowed
        with _step_errors(self.step):
            need = self.step.op.reads(index, [x.shape for x in self.inputs], self.step.attrs)
            parts = [x[np.ix_(*box)] if box else x for x, box in zip(self.inputs, need.boxes, strict=True)]
        return _forward(self.step, parts, need.attrs).allowed


class Recomputation:
    """The program's steps, run in order on the recorded values.

    With `rounds_once`, the steps between recorded values are taken to be computed in float32 and not rounded,
    but for the pattern inside an attention kernel; else every step is rounded.
    """

    def __init__(self, tape: Tape, theirs: Recording, rounds_once: bool = False) -> None:
        self.tape, self.rounds_once = tape, rounds_once
        self.recorded = {tape.resolve(name): value for name, value in reversed([*theirs.items()])}
        self.dtypes = _assign_dtypes(tape, self.recorded)
        # what was not recorded: its value, where its span begins, and its value where each step is rounded
        self.computed: dict[str, Bounded] = {}
        self.since: dict[str, str] = {}
        self.narrow = {
            name: round_to(tape.values[name], SINGLE)
            for name, role in tape.roles.items()
            if role == "leaf" and tape.values[name].dtype.kind == "f" and name not in self.recorded
        }

    def compute(self, name: str) -> Recomputed:
        """Returns the value of one name; its inputs must have been computed before."""
        value = self.tape.values[name]
        if (step := self.tape.steps.get(name)) is None:
            return Recomputed(Bounded(value))
        inputs = [self._read(x, self.dtypes[name]) for x in step.inputs]
        made = _forward(step, inputs, step.attrs)
        if made.shape != value.shape:
            raise TapeError(f"{name!r} has the shape {value.shape}, and its inputs give {made.shape}.")
        is_span = any(x in self.since for x in step.inputs)
        source = min(step.inputs, key=self._source_order)
        since = self.since.get(source, source)
        if name in self.recorded:
            narrow = self._compute_narrow(step, inputs) if is_span else None
            return Recomputed(made, step, inputs, since if is_span else None, narrow)
        narrow = self._compute_narrow(step, inputs)
        self.computed[name], self.since[name] = made, since
        is_rounded = not self.rounds_once or name.rpartition(".")[2] in HELD_NARROW
        if narrow.dtype.kind == "f" and is_rounded:
            narrow = round_to(narrow, self.dtypes[name])
        self.narrow[name] = narrow
        return Recomputed(made, step, inputs)

    def compute_stated(self, recomputed: Recomputed) -> Array:
        """Returns a value as float32 arithmetic gives it from the same recorded inputs."""
        assert recomputed.step is not None
        if recomputed.narrow is not None:
            return recomputed.narrow
        return self._compute_narrow(recomputed.step, list(recomputed.inputs))

    def values(self) -> dict[str, Array]:
        """Returns what was recorded, and the recomputed values of everything else."""
        return {name: entry.value for name, entry in self.recorded.items()} | {
            name: entry.value for name, entry in self.computed.items()
        }

    def _read(self, name: str, dtype: Dtype) -> Any:
        value = self.recorded[name].value if name in self.recorded else self.tape.values[name]
        if self.tape.roles[name] == "leaf" and value.dtype.kind == "f":
            return bound_table(value, dtype)  # recorded or not: the run may have held more of its digits
        return (
            self.computed[name]
            if name in self.computed
            else (Bounded(value) if value.dtype.kind == "f" else value)
        )

    def _source_order(self, name: str) -> tuple[bool, bool, bool]:
        """Sorts the inputs of a step by how well they say where its span begins."""
        return name not in self.since, name not in self.recorded, self.tape.roles[name] == "param"

    def _compute_narrow(self, step: Step, inputs: list[Any]) -> Array:
        """Returns the step in float32, as libraries compute it, on inputs that each hidden step rounded."""
        read = [
            self.narrow.get(name, getattr(x, "value", x)) for name, x in zip(step.inputs, inputs, strict=True)
        ]
        single = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in read]
        made = _forward(step, single, step.attrs).value
        return made.astype(np.float64) if made.dtype.kind == "f" else made


def _forward(step: Step, inputs: Sequence[Any], attrs: Attrs) -> Bounded:
    with _step_errors(step), np.errstate(all="ignore"):
        made = step.op.forward(*inputs, **attrs)
    return made if isinstance(made, Bounded) else Bounded(made)


@contextmanager
def _step_errors(step: Step) -> Iterator[None]:
    """Raises one kind of error: an untrusted trace may hold a step that cannot run, or ids beyond a table."""
    try:
        yield
    except Exception as error:
        raise TapeError(f"{step.name!r} cannot be computed from their numbers: {error}.") from error


def _assign_dtypes(tape: Tape, recorded: Recording) -> dict[str, Dtype]:
    """Returns the type in which each value was computed: as recorded, else the coarsest of its readers'."""
    found: dict[str, Dtype] = {}
    for name in reversed(tape.values):
        own = recorded[name].dtype if name in recorded else found.get(name, BY_NAME["float64"])
        found[name] = own
        step = tape.steps.get(name)
        for read in step.inputs if step else ():
            if read not in recorded:
                found[read] = max(own, found.get(read, own), key=lambda dtype: dtype.roundoff)
    return found
