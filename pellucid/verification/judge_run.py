"""Noise or bug: each value that another program recorded, recomputed in float64 from its own recorded inputs.

A run in another precision departs from the specification's run, and the size of that difference alone proves
nothing. A bug is a step whose error exceeds what rounding can do to its own inputs (`rounding.py`).
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.base.patterns import matches
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index, Op, Shape, each
from pellucid.reference.ops import table
from pellucid.reference.tape import Step, Tape
from pellucid.verification.foreign_values import RecordedValue, Recording, check_recorded
from pellucid.verification.mismatch import (
    BETWEEN_ENGINES,
    Mismatch,
    explain_mismatch,
    find_first_mismatch,
    find_mismatch,
    kind_of,
    largest,
    scales_by_kind,
)
from pellucid.verification.precision import NARROW, STATED_ALLOWED, find_bias, measure_share
from pellucid.verification.recompute import Recomputation, Recomputed
from pellucid.verification.rounding import MIN_CELLS, SINGLE, Bounded, round_to
from pellucid.verification.run_report import Deviation, RunReport
from pellucid.verification.verdict import Verdict

CELLS_EXAMINED = 32
"""How many cells beyond the usual budget have their terms examined one by one."""
RERUN_ALLOWED = 20
"""How many times the error of the same steps in its type a span of hidden steps may be off. Measured in
float32 at the width of SmolLM2: a healthy span is off by up to 6, the mildest planted bug, an ε of 1e-3, by
49."""
OWN_UNITS = 0.5
"""The units below which a span of our own engine is not held against a rerun."""


def judge_run(
    run: Tape | Trace,
    recorded: Mapping[str, RecordedValue | tuple[Array, str]],
    *,
    tolerance: float | None = None,
    only: str = "*",
    rounds_once: bool = False,
    is_ours: bool = False,
    absent: Mapping[str, Array] | None = None,
) -> RunReport:
    """Judges recorded values by the program of `run`, which had the same ids and parameters.

    A step reads the recorded inputs, else the recomputed ones; so one wrong step is named, and the steps
    after it are not blamed. Values within `tolerance` are equal in any type (default: 1e-10, float64 only).
    `rounds_once` says that the run states to compute 16-bit values in float32 and to round each once, as our
    own engine does: one that is systematically worse has a lower precision than stated (`precision.py`).
    `is_ours` says that one of our engines recorded them: a name that the program does not have is then a bug
    at that name; otherwise it is an error. `absent` says where [B T] a run did not compute a value, such as
    logits that were not asked for: the recomputed numbers stand there, and are not judged.
    """
    trace = run if isinstance(run, Trace) else Trace(run)
    unknown = [name for name in recorded if is_ours and name not in trace.tape]
    theirs = check_recorded(trace.tape, {name: x for name, x in recorded.items() if name not in unknown})
    recomputation = Recomputation(trace.tape, theirs, rounds_once)
    judge = _ValueJudge(trace, theirs, only, tolerance, recomputation if rounds_once else None)
    for name in trace.tape.values:
        recomputed = recomputation.compute(name)
        for alias, places in (absent or {}).items():
            if trace.tape.resolve(alias) == name:
                held = theirs[alias]
                held.value[places] = round_to(recomputed.value.value, held.dtype)[places]
        judge.judge(name, recomputed)
    judge.values += [Deviation.of_unknown(name) for name in unknown if matches(name, [only])]
    return judge.report(recomputation)


class _ValueJudge:
    """Compares each recorded value with its recomputation, and explains the first bug."""

    def __init__(
        self,
        trace: Trace,
        theirs: Recording,
        only: str,
        tolerance: float | None,
        stated: Recomputation | None = None,
    ) -> None:
        self.trace, self.tolerance, self.stated = trace, tolerance, stated
        self.values: list[Deviation] = []
        self.judged: dict[str, dict[str, RecordedValue]] = {}
        """The recorded values to judge, by the name of their step and the name (an alias) they came under."""
        for name, value in theirs.items():
            if matches(name, [only]):
                self.judged.setdefault(trace.tape.resolve(name), {})[name] = value
        self.scales = scales_by_kind({name: value.value for name, value in theirs.items()})

    def judge(self, name: str, recomputed: Recomputed) -> None:
        """Adds the deviation of each recorded value of this name."""
        for alias, theirs in self.judged.get(name, {}).items():
            if not theirs.value.size:
                continue
            found = _measure(alias, theirs, recomputed, is_own=self.stated is not None)
            found = replace(
                found,
                address=alias + self.trace.address(name, found.index).removeprefix(name),
                since=recomputed.since,
                given=self.trace.tape.roles[name] if recomputed.step is None else "",
                is_equal=self._is_equal(alias, theirs, recomputed),
                limit=max(found.limit, self._least_error(alias, theirs)),
            )
            if found.is_bug and recomputed.step and (layout := self._other_layout(alias)):
                moved = theirs._replace(value=_reorder_channels(theirs.value, layout))
                if not _measure(alias, moved, recomputed).is_bug:
                    found = replace(found, layout=layout)
            is_stated = theirs.type in NARROW and recomputed.step is not None and not found.is_bug
            if self.stated is not None and is_stated:
                found = self._measure_precision(found, theirs, recomputed, self.stated)
            self.values.append(found)

    def _measure_precision(
        self, found: Deviation, theirs: RecordedValue, recomputed: Recomputed, stated: Recomputation
    ) -> Deviation:
        """Returns the deviation, marked where the numbers are worse than the stated arithmetic."""
        bound, narrow = recomputed.value, stated.compute_stated(recomputed)
        if bound.size < MIN_CELLS:
            return found
        multiples = bound.multiples(theirs.value, narrow, theirs.dtype)
        found = replace(found, limit=bound.rerun_limit(narrow, theirs.dtype, STATED_ALLOWED))
        if (most := float(multiples.max())) > STATED_ALLOWED:
            why = f"an error is {most:.3g} times that of the stated arithmetic, {STATED_ALLOWED} allowed"
            return replace(found, low_precision=why)
        share = measure_share(theirs.value, bound.value, narrow, theirs.dtype)
        return replace(found, low_precision=str(share)) if share is not None and share.is_low else found

    def _is_equal(self, name: str, theirs: RecordedValue, recomputed: Recomputed) -> bool:
        if self.tolerance is None and theirs.type != "float64":
            return False
        tolerance = BETWEEN_ENGINES if self.tolerance is None else self.tolerance
        scale = self.scales[kind_of(name)]
        return find_mismatch(name, theirs.value, recomputed.value.value, tolerance, scale) is None

    def _least_error(self, name: str, theirs: RecordedValue) -> float:
        """Returns the relative error up to which a value is equal, however many units that is."""
        if self.tolerance is None and theirs.type != "float64":
            return 0.0
        tolerance = BETWEEN_ENGINES if self.tolerance is None else self.tolerance
        size = largest([theirs.value])
        return tolerance * max(1.0, self.scales[kind_of(name)] * 1e-3 / size) if size else 0.0

    def _other_layout(self, name: str) -> str:
        """Returns the order of channels that this model does not use, for queries and keys with RoPE."""
        if not re.search(r"\.[qk](_rot)?$", name):
            return ""
        rotations = (step for step in self.trace.tape.steps.values() if step.op.name == "rotate")
        own = next((step.attrs.get("layout") for step in rotations), None)
        return {"halves": "pairs", "pairs": "halves"}.get(str(own), "")

    def report(self, recomputation: Recomputation) -> RunReport:
        trace, report = self.trace, RunReport(tuple(self.values))
        mismatch = self._first_mismatch(computed_only=bool(report.different_weights))
        at = mismatch.name if mismatch else ""
        if mismatch and mismatch.index:
            at = trace.address(mismatch.name, mismatch.index)
        report = replace(report, mismatch=mismatch, mismatch_at=at)
        values = recomputation.values()
        if report.bugs and report.bugs[0].is_known and not report.bugs[0].given:
            bug = report.bugs[0]
            name = trace.tape.resolve(bug.name)
            right = trace.value(name).copy()  # what the formula must give, at this cell
            right[bug.index] = bug.wanted
            shown = Mismatch(_name_to_explain(bug, recomputation), bug.index, bug.got, bug.wanted)
            filled = _with_values(trace, values | {name: right})
            return replace(report, formula=explain_mismatch(shown, filled, head=False))
        if report.verdict is Verdict.DIFFERENT and mismatch:
            formula = explain_mismatch(mismatch, _with_values(trace, values), head=False)
            return replace(report, formula=formula)
        return report

    def _first_mismatch(self, computed_only: bool) -> Mismatch | None:
        """Returns the first recorded value that is not what the specification's own run gives."""
        tape = self.trace.tape
        names = [name for name in tape.values if name in self.judged]
        wanted = {name: tape.values[name] for name in names if not computed_only or name in tape.steps}
        theirs = {name: next(iter(self.judged[name].values())).value for name in names}
        tolerance = BETWEEN_ENGINES if self.tolerance is None else self.tolerance
        return find_first_mismatch(theirs, wanted, tolerance)


def _measure(name: str, theirs: RecordedValue, recomputed: Recomputed, is_own: bool = False) -> Deviation:
    """Returns the deviation in units of u · Σ|terms|; at the end of a span of hidden steps, in multiples of
    the error of the same steps run in its type, where that is the stricter measure. Spans of our own engine
    are short: half of a unit is what one rounding does, and a rerun may be more exact by chance."""
    bound, narrow = recomputed.value, recomputed.narrow
    units = bound.units(theirs.value, theirs.dtype)
    index, allowed = _worst_cell(units, bound.allowed, recomputed.allowed_at if recomputed.step else None)
    rerun_type, is_bounded = "", bool(np.isfinite(bound.terms).all())
    limit = bound.limit(theirs.dtype)
    if narrow is not None and theirs.type != "float64" and narrow.size >= MIN_CELLS:
        multiples = bound.multiples(theirs.value, narrow, theirs.dtype, is_span=True)
        is_bounded = bool(np.isfinite(narrow[np.isfinite(bound.value)]).all())  # float32 may overflow
        least = limit * OWN_UNITS / bound.allowed if is_own else 0.0
        rerun_limit = bound.rerun_limit(narrow, theirs.dtype, RERUN_ALLOWED, is_span=True)
        limit = min(limit, max(rerun_limit, least))
        if is_own:
            multiples = np.where(units > OWN_UNITS, multiples, 0.0)
        if multiples.max() / RERUN_ALLOWED > units[index] / allowed:
            units, allowed, rerun_type = multiples, RERUN_ALLOWED, theirs.type
            index = _unravel(int(multiples.argmax()), multiples.shape)
    fits, cell = "", 0
    if recomputed.step:
        fits, cell = find_swapped_activation(recomputed.step, recomputed.inputs, theirs.value, theirs.dtype)
    if fits and units[index] <= allowed:
        index = _unravel(cell, units.shape)
    bias = find_bias(theirs.value, bound, theirs.dtype) if recomputed.step else ""
    return Deviation(
        name,
        name,
        index,
        float(theirs.value[index]),
        float(bound.value[index]),
        float(units[index]),
        allowed,
        fits=fits,
        bias=bias,
        rerun_type=rerun_type,
        limit=limit,
        is_bounded=is_bounded,
    )


def _worst_cell(
    units: Array, allowed: float, allowed_at: Callable[[Index], float] | None
) -> tuple[Index, float]:
    """Returns the cell to report and its budget.

    Of the cells beyond the budget a few are examined by their own terms: the first that is still beyond its
    own budget is reported, else the worst with the budget of its own.
    """
    worst = _unravel(int(units.argmax()), units.shape)
    if units[worst] <= allowed or allowed_at is None:
        return worst, allowed
    count = min(CELLS_EXAMINED, int((units > allowed).sum()))
    cells = np.argpartition(-units.ravel(), count - 1)[:count]
    own = allowed
    for number in cells[np.argsort(-units.ravel()[cells], kind="stable")]:
        cell = _unravel(int(number), units.shape)
        limit = max(allowed, allowed_at(cell))
        if units[cell] > limit:
            return cell, limit
        own = limit if cell == worst else own
    return worst, own


def _unravel(number: int, shape: Shape) -> Index:
    return tuple(int(i) for i in np.unravel_index(number, shape))


def _reorder_channels(value: Array, layout: str) -> Array:
    """Returns channels that are in this RoPE layout in the other one."""
    channels = np.arange(value.shape[-1])
    order = channels.reshape(2, -1).T if layout == "halves" else channels.reshape(-1, 2).T
    return value[..., order.ravel()]


def _name_to_explain(bug: Deviation, recomputation: Recomputation) -> str:
    """Returns the value whose formula explains the bug: the scores, where a mask only hands on a score that
    was not recorded."""
    steps, name = recomputation.tape.steps, recomputation.tape.resolve(bug.name)
    first = steps[name].inputs[0]
    is_handed_on = steps[name].op.name == "mask" and first in steps and first not in recomputation.recorded
    return first if is_handed_on and np.isfinite([bug.got, bug.wanted]).all() else name


def _with_values(trace: Trace, values: Mapping[str, Array]) -> Trace:
    """Returns the same program holding these values where there are any, else its own."""
    tape = Tape(trace.tape.dtype)
    tape.steps, tape.aliases, tape.roles, tape.about = (
        trace.tape.steps, trace.tape.aliases, trace.tape.roles, trace.tape.about,
    )  # fmt: skip
    tape.values = {**trace.tape.values, **values}
    return Trace(tape, trace.run, trace.labels)


DISTINCT = 8
"""Two functions are distinguished by at least this many cells where they are this many roundings apart."""
SAMPLE = 2**16
"""How many cells are examined at most."""


def find_swapped_activation(step: Step, inputs: Sequence[Any], got: Array, dtype: Dtype) -> tuple[str, int]:
    """Returns the other operation that gives these numbers ("" for none), and the flat index of a cell that
    shows it."""
    if not is_elementwise(step.op) or step.attrs:
        return "", 0
    stride = max(1, got.size // SAMPLE)
    x, got = Bounded(inputs[0].value.ravel()[::stride]), got.ravel()[::stride]
    with np.errstate(all="ignore"):
        own = step.op.forward(x).value
        for name, other in table().items():
            if other is step.op or not is_elementwise(other):
                continue
            value = other.forward(x)
            inside = value.allowed * SINGLE.roundoff * value.terms  # libraries compute in float32
            one = dtype.roundoff * np.maximum(np.abs(value.value), dtype.smallest_normal) + inside
            apart, close = np.abs(own - value.value) / one, np.abs(got - value.value) <= one
            is_distinct = apart > DISTINCT
            if is_distinct.sum() >= DISTINCT and close[is_distinct].mean() > 0.9:
                return name, stride * int(np.where(close & is_distinct, apart, 0).argmax())
    return "", 0


def is_elementwise(op: Op) -> bool:
    """Returns whether the operation is a function of one number, applied elementwise, without settings."""
    parameters = list(inspect.signature(op.forward).parameters.values())
    return (
        op.reads is each
        and len(parameters) == 1
        and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
