"""Noise or bug: each of somebody's numbers, recomputed in float64 from their own numbers before it.

A run in another precision drifts from ours, and the drift alone says nothing. What says something is a step
that does not follow from its own inputs: its error is held against what rounding can do (`rounding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pellucid.errors import TapeError, UsageError
from pellucid.explain.trace import Trace
from pellucid.judge.mismatch import (
    BETWEEN_ENGINES,
    Mismatch,
    explain_mismatch,
    find_first_mismatch,
    find_mismatch,
    kind,
    largest,
)
from pellucid.judge.other_curve import other_curve
from pellucid.judge.rounding import ENOUGH, PRECISIONS, Bounded, Precision, rounded, table
from pellucid.judge.verdict import Judged, Replayed
from pellucid.reference.op import Array, Attrs, Index, Shape
from pellucid.reference.tape import Step, Tape

LOOKED_AT = 32
"""How many cells beyond the usual budget have their terms looked at one by one."""


REPLAYED = 20
"""How many times the error of a replay in their type a span of hidden steps may be off. Measured in float32
at the width of SmolLM2: a healthy span is off by up to 6, the mildest planted bug, an ε of 1e-3, by 49."""


class RecordedValue(NamedTuple):
    """Somebody's value, widened to float64, and the type in which they held it."""

    value: Array
    type: str = "float64"

    @property
    def precision(self) -> Precision:
        return PRECISIONS.get(self.type, PRECISIONS["float64"])  # whole numbers are exact


def judge_run(
    run: Tape | Trace,
    recorded: Mapping[str, RecordedValue | tuple[Array, str]],
    *,
    tolerance: float | None = None,
    only: str = "*",
) -> Replayed:
    """Judge what somebody recorded, under the names of our run of the same ids and parameters.

    A step reads what they recorded, else what was recomputed; so one wrong step is named, and what follows
    from it is not blamed. Values within `tolerance` are equal in any type (else, within 1e-10 in float64).
    """
    trace = run if isinstance(run, Trace) else Trace(run)
    tape = trace.tape
    theirs = _theirs(tape, recorded)
    first = {tape.resolve(name): value for name, value in reversed(theirs.items())}
    precisions = _precisions(tape, first)
    judge = _Judge(trace, theirs, only, tolerance)
    made: dict[str, Bounded] = {}
    narrow: dict[str, Array] = {}  # a value that was not recorded, as steps that round in their type make it
    since: dict[str, str] = {}  # a value that was not recorded → the recorded one where its span begins

    for name, role in tape.roles.items():
        if role == "leaf" and tape.values[name].dtype.kind == "f" and name not in first:
            narrow[name] = rounded(tape.values[name], PRECISIONS["float32"])

    def read(name: str, precision: Precision) -> Any:
        if name in first:
            return _exact(first[name].value)
        if name in tape.steps:
            return made[name]
        value = tape.values[name]
        if tape.roles[name] == "leaf" and value.dtype.kind == "f":
            return table(value, precision)
        return _exact(value)

    for name, value in tape.values.items():
        if (step := tape.steps.get(name)) is None:
            judge(name, Bounded(value))
            continue
        inputs = [read(x, precisions[name]) for x in step.inputs]
        made[name] = _forward(step, inputs, step.attrs)
        if made[name].shape != value.shape:
            raise TapeError(f"{name!r} has the shape {value.shape}, and its inputs give {made[name].shape}.")
        hidden = any(x in since for x in step.inputs)
        coarse = _coarse(step, inputs, narrow) if hidden or name not in first else made[name].value
        source = min(step.inputs, key=lambda x: (x not in since, x not in first, tape.roles[x] == "param"))
        start = since.get(source, source)
        if name in first:
            judge(name, made.pop(name), (step, inputs), *((start, coarse) if hidden else ()))
        else:
            since[name] = start
            narrow[name] = rounded(coarse, precisions[name]) if coarse.dtype.kind == "f" else coarse
    return judge.replayed(first, made)


def _coarse(step: Step, inputs: list[Any], narrow: Mapping[str, Array]) -> Array:
    """The step in float32, as libraries take it, where what it reads was rounded at every hidden step."""
    read = [narrow.get(name, getattr(x, "value", x)) for name, x in zip(step.inputs, inputs, strict=True)]
    single = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in read]
    made = _forward(step, single, step.attrs).value
    return made.astype(np.float64) if made.dtype.kind == "f" else made


def _alone(step: Step, inputs: list[Any], index: Index) -> float:
    """What rounding may use at one cell, whose terms can be looked at one by one."""
    with _computing(step):
        need = step.op.reads(index, [x.shape for x in inputs], step.attrs)
        parts = [x[np.ix_(*box)] if box else x for x, box in zip(inputs, need.boxes, strict=True)]
    return _forward(step, parts, need.attrs).allowed


def _forward(step: Step, inputs: list[Any], attrs: Attrs) -> Bounded:
    with _computing(step), np.errstate(all="ignore"):
        made = step.op.forward(*inputs, **attrs)
    return made if isinstance(made, Bounded) else Bounded(made)


@contextmanager
def _computing(step: Step) -> Iterator[None]:
    """A stranger's trace may hold a step that cannot run, or ids beyond the table."""
    try:
        yield
    except Exception as error:
        raise TapeError(f"{step.name!r} cannot be computed from their numbers: {error}.") from error


class _Judge:
    """Holds each recorded value against its recomputation, and tells the first bug."""

    def __init__(
        self, trace: Trace, theirs: Mapping[str, RecordedValue], only: str, tolerance: float | None
    ) -> None:
        self.trace, self.tolerance = trace, tolerance
        self.values: list[Judged] = []
        self.named: dict[str, dict[str, RecordedValue]] = {}
        for name, value in theirs.items():
            if fnmatchcase(name, only):
                self.named.setdefault(trace.tape.resolve(name), {})[name] = value
        kinds: dict[str, list[Array]] = {}
        for name, value in theirs.items():
            kinds.setdefault(kind(name), []).append(value.value)
        self.scales = {which: largest(values) for which, values in kinds.items()}

    def __call__(
        self,
        name: str,
        made: Bounded,
        how: tuple[Step, list[Any]] | None = None,
        since: str | None = None,
        narrow: Array | None = None,
    ) -> None:
        for called, theirs in self.named.get(name, {}).items():
            if not theirs.value.size:
                continue
            judged = self._judged(called, made, theirs, how, narrow)
            place = called + self.trace.address(name, judged.index).removeprefix(name)
            role = self.trace.tape.roles[name] if how is None else ""
            judged = replace(judged, address=place, since=since, given=role)
            judged = replace(judged, excused=self._equal(called, theirs, made))
            if judged.is_bug and how and (layout := self._other_layout(called)):
                moved = theirs._replace(value=_reordered(theirs.value, layout))
                if not self._judged(called, made, moved, how, narrow).is_bug:
                    judged = replace(judged, layout=layout)
            self.values.append(judged)

    def _judged(
        self,
        called: str,
        made: Bounded,
        theirs: RecordedValue,
        how: tuple[Step, list[Any]] | None,
        narrow: Array | None,
    ) -> Judged:
        """By Σ|terms|; where a span of steps ends, by a replay of it in their type if that says more."""
        units = made.units(theirs.value, theirs.precision)
        index, allowed = _worst(units, made.allowed, partial(_alone, *how) if how else None)
        replayed, told = "", bool(np.isfinite(made.bulk).all())
        if narrow is not None and theirs.type != "float64" and narrow.size >= ENOUGH:
            off = made.against(narrow, theirs.value, theirs.precision)
            told = bool(np.isfinite(narrow[np.isfinite(made.value)]).all())  # float32 may overflow on the way
            if off.max() / REPLAYED > units[index] / allowed:
                units, allowed, replayed = off, REPLAYED, theirs.type
                index = _index(int(off.argmax()), off.shape)
        fits, telling = other_curve(*how, theirs.value, theirs.precision) if how else ("", 0)
        if fits and units[index] <= allowed:
            index = _index(telling, units.shape)
        return Judged(
            called,
            called,
            index,
            float(theirs.value[index]),
            float(made.value[index]),
            float(units[index]),
            allowed,
            fits=fits,
            replayed=replayed,
            told=told,
        )

    def _other_layout(self, called: str) -> str:
        """The order of channels that this model does not have, for a value that has such an order."""
        if not re.search(r"\.[qk](_rot)?$", called):
            return ""
        turned = (step for step in self.trace.tape.steps.values() if step.op.name == "rotate")
        own = next((step.attrs.get("layout") for step in turned), None)
        return {"halves": "pairs", "pairs": "halves"}.get(str(own), "")

    def _equal(self, called: str, theirs: RecordedValue, made: Bounded) -> bool:
        if self.tolerance is None and theirs.type != "float64":
            return False
        tolerance = BETWEEN_ENGINES if self.tolerance is None else self.tolerance
        return find_mismatch(called, theirs.value, made.value, tolerance, self.scales[kind(called)]) is None

    def replayed(self, first: Mapping[str, RecordedValue], made: dict[str, Bounded]) -> Replayed:
        trace = self.trace
        ours = {name: trace.value(name) for name in self.named}
        theirs = {name: next(iter(named.values())).value for name, named in self.named.items()}
        in_order = {name: ours[name] for name in trace.tape.values if name in ours}
        done = Replayed(tuple(self.values))
        if done.given_differently:
            in_order = {name: value for name, value in in_order.items() if name in trace.tape.steps}
        tolerance = BETWEEN_ENGINES if self.tolerance is None else self.tolerance
        parted = find_first_mismatch(theirs, in_order, tolerance)
        at = parted.name if parted else ""
        if parted and parted.index:
            at = trace.address(parted.name, parted.index)
        done = replace(done, departure=parted, departs_at=at)
        if done.bugs and not done.bugs[0].given:
            bug = done.bugs[0]
            name = trace.tape.resolve(bug.name)
            right = trace.value(name).copy()  # what the formula must give, at this cell
            right[bug.index] = bug.wanted
            filled = _filled(trace, first, made | {name: Bounded(right)})
            told_at = Mismatch(_telling(trace.tape, bug, first), bug.index, bug.got, bug.wanted)
            return replace(done, story=explain_mismatch(told_at, filled, head=False))
        if done.verdict == "different" and parted:
            return replace(done, story=explain_mismatch(parted, _filled(trace, first, made), head=False))
        return done


def _telling(tape: Tape, bug: Judged, first: Mapping[str, RecordedValue]) -> str:
    """The value whose formula makes the number: where a mask only hands on a score that was not recorded,
    the scores."""
    name = tape.resolve(bug.name)
    step = tape.steps[name]
    handed_on = step.op.name == "mask" and step.inputs[0] in tape.steps and step.inputs[0] not in first
    return step.inputs[0] if handed_on and np.isfinite([bug.got, bug.wanted]).all() else name


def _worst(units: Array, allowed: float, alone: Callable[[Index], float] | None) -> tuple[Index, float]:
    """The worst cell and what it is allowed. Of the cells that use more, a few are looked at by themselves:
    the first that still uses more is the one to tell, else the worst with an allowance of its own."""
    worst = _index(int(units.argmax()), units.shape)
    if units[worst] <= allowed or alone is None:
        return worst, allowed
    count = min(LOOKED_AT, int((units > allowed).sum()))
    cells = np.argpartition(-units.ravel(), count - 1)[:count]
    own = allowed
    for number in cells[np.argsort(-units.ravel()[cells], kind="stable")]:
        cell = _index(int(number), units.shape)
        limit = max(allowed, alone(cell))
        if units[cell] > limit:
            return cell, limit
        own = limit if cell == worst else own
    return worst, own


def _reordered(value: Array, layout: str) -> Array:
    """Their channels, which are in this layout, in the other one."""
    channels = np.arange(value.shape[-1])
    order = channels.reshape(2, -1).T if layout == "halves" else channels.reshape(-1, 2).T
    return value[..., order.ravel()]


def _index(number: int, shape: Shape) -> Index:
    return tuple(int(i) for i in np.unravel_index(number, shape))


def recorded_values(trace: Trace) -> dict[str, RecordedValue]:
    """The numbers of a run, each in the type in which it was held; of a run of the fast engine, those that it
    made and the parameters that it read."""
    types, values = trace.run.get("types"), trace.tape.values
    if not isinstance(types, dict):
        return {name: RecordedValue(value, value.dtype.name) for name, value in values.items()}
    given = {name: str(trace.run.get("dtype")) for name, role in trace.tape.roles.items() if role == "param"}
    return {
        name: RecordedValue(values[name], str(type))
        for name, type in (given | types).items()
        if name in values
    }


def _theirs(
    tape: Tape, recorded: Mapping[str, RecordedValue | tuple[Array, str]]
) -> dict[str, RecordedValue]:
    """What was recorded, in the shapes of the program."""
    theirs = {}
    for name, (given, type) in recorded.items():
        ours, value = tape[name], np.asarray(given)
        if value.shape != ours.shape:
            raise UsageError(f"{name} has the shape {value.shape} there, and {ours.shape} here.")
        if ours.dtype.kind in "iu":
            if not np.array_equal(value, np.rint(value)):
                raise UsageError(f"{name} holds whole numbers here, and others there.")
            theirs[name] = RecordedValue(value.astype(np.int64), "int64")
            continue
        if type not in PRECISIONS and not re.fullmatch(r"bool|u?int\d+", type):
            raise UsageError(f"no type called {type!r}; have {', '.join(PRECISIONS)}.")
        theirs[name] = RecordedValue(value.astype(np.float64), type)
    return theirs


def _precisions(tape: Tape, first: Mapping[str, RecordedValue]) -> dict[str, Precision]:
    """The type in which each value was made: as recorded, else the coarsest of those who read it."""
    found: dict[str, Precision] = {}
    for name, step in [*((n, tape.steps.get(n)) for n in reversed(tape.values))]:
        own = first[name].precision if name in first else found.get(name, PRECISIONS["float64"])
        found[name] = own
        for read in step.inputs if step else ():
            if read not in first:
                found[read] = max(own, found.get(read, own))
    return found


def _exact(value: Array) -> Any:
    return Bounded(value) if value.dtype.kind == "f" else value


def _filled(trace: Trace, first: Mapping[str, RecordedValue], made: Mapping[str, Bounded]) -> Trace:
    """The same program holding their numbers, and the recomputed ones where they recorded none."""
    tape = Tape(trace.tape.dtype)
    tape.steps, tape.aliases, tape.roles, tape.about = (
        trace.tape.steps, trace.tape.aliases, trace.tape.roles, trace.tape.about,
    )  # fmt: skip
    tape.values = trace.tape.values | {name: entry.value for name, entry in first.items()}
    tape.values |= {name: x.value for name, x in made.items()}
    return Trace(tape, trace.run, trace.labels)
