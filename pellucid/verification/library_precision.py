"""The precision of another program: float32 inside, as in libraries, or a rounding after every operation.

Another program has not said how it computes. Libraries carry norms, softmax and sums in float32 and round the
result; a program that is written in tensors of 16 bits rounds after every operation. Both are right. What
neither explains is a lower precision: a sum that is rounded while it is added up, or a norm in 16 bits beside
a softmax in float32. The measure is the share of correctly rounded numbers (`precision.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.ops.einsum import parse
from pellucid.reference.tape import Step, Tape
from pellucid.verification.foreign_values import Recording
from pellucid.verification.precision import NARROW, RoundedShare, measure_share
from pellucid.verification.rounding import round_to
from pellucid.verification.run_report import RunReport
from pellucid.verification.span import (
    Compute,
    RoundedProgram,
    compute_in_float32,
    compute_rounded,
    cut_span,
    find_kinds,
    is_one_norm,
    round_each_step,
    run_span,
)
from pellucid.verification.verdict import Verdict

ORDER = 0.1
"""By how much the share of a program that rounds every operation may be below ours, which rounds the same
operations in another order; on top of the margin of a share."""
ROW_ERROR = 3
"""How many times the error of whole rows of a norm may be that of a rounding after every operation; where
the root mean square is in float32, it is √C times smaller."""
REMARK = "their norms and softmax are rounded after every operation, as in a program without float32 inside"


def judge_precision(report: RunReport, trace: Trace, recorded: Recording) -> RunReport:
    """Returns a report of noise with the values marked that have a lower precision than both conventions."""
    if report.verdict is not Verdict.NOISE:
        return report
    tape = trace.tape
    theirs = {tape.resolve(name): value for name, value in reversed([*recorded.items()])}
    programs = {type: RoundedProgram(tape, BY_NAME[type]) for type in NARROW}
    low: dict[str, tuple[str, str]] = {}
    """Of each value below the convention of libraries: its kind and the measured share."""
    wide: set[str] = set()
    """The kinds that are clearly in float32."""
    worse: set[str] = set()
    """The kinds that a rounding after every operation does not explain either."""
    names = {tape.resolve(value.name): value.name for value in reversed(report.values)}
    for name in (name for kind in find_kinds(reversed(names), tape, theirs) for name in kind):
        if not (kind := _find_kind(tape, name, theirs)):
            continue
        numbers = _Numbers(programs[theirs[name].type].cut(name, theirs), name, theirs)
        if numbers.is_low:  # are their weights in float32?
            plain = _Numbers(cut_span(tape, name, theirs), name, theirs)
            numbers = plain if plain.share.found > numbers.share.found else numbers
        if numbers.is_low:
            low[names[name]] = kind, str(numbers.share)
            worse |= {kind} if kind == "sum" or not numbers.is_rounded_everywhere else set()
        elif numbers.is_wide:
            wide.add(kind)
    if wide & {"norm", "softmax"}:
        worse |= {kind for kind, _ in low.values()} - wide
    if worse:
        return _mark(report, {name: share for name, (kind, share) in low.items() if kind in worse})
    return replace(report, remark=REMARK) if low else report


def _mark(report: RunReport, low: Mapping[str, str]) -> RunReport:
    return replace(
        report,
        values=tuple(replace(value, low_precision=low.get(value.name, "")) for value in report.values),
    )


def _find_kind(tape: Tape, name: str, theirs: Recording) -> str:
    """Returns "norm", "softmax" or "sum" for a value of 16 bits with recorded inputs of its own type (of a
    norm, the first input), "" for all others: steps between would bring roundings of their own."""
    step, own = tape.steps.get(name), theirs[name]
    if step is None or step.phase != "fwd" or own.type not in NARROW:
        return ""
    span = cut_span(tape, name, theirs)
    read = {
        x for each in span.steps.values() for x in each.inputs if x in theirs and tape.roles[x] != "param"
    }
    if any(theirs[x].type not in (own.type, "int64") for x in read):
        return ""
    if is_one_norm(span, name):
        return "norm"
    is_alone = len(span.steps) == 1
    return (
        "softmax" if is_alone and step.op.name == "softmax" else "sum" if is_alone and _is_sum(step) else ""
    )


def _is_sum(step: Step) -> bool:
    if step.op.name != "einsum":
        return False
    spec = parse(step.attrs["spec"])
    return bool({*"".join("".join(axes) for axes in spec.inputs)} - {*"".join(spec.result)})


class _Numbers:
    """A recorded value, and the same from its inputs in several arithmetics."""

    def __init__(self, span: Tape, name: str, theirs: Recording) -> None:
        self.span, self.name, self.theirs = span, name, theirs
        self.own, self.exact = theirs[name], run_span(span, theirs)[name]
        self.is_norm = is_one_norm(span, name)

    def _run(self, compute: Compute) -> Array:
        return run_span(self.span, self.theirs, compute)[self.name]

    @cached_property
    def stated(self) -> list[Array]:
        """The value as libraries compute it: rounded once, or after each step; with a factor, after the sum
        and after the factor."""
        made = [round_to(self._run(compute_in_float32), self.own.dtype)]
        if len(self.span.steps) > 1:
            made.append(self._run(round_each_step(self.own.dtype, keep_statistics=True)))
        if self.span.steps[self.name].attrs.get("scale", 1.0) != 1.0:
            made.append(self.rounded_everywhere)
        return made

    @cached_property
    def rounded_everywhere(self) -> Array:
        return self._run(lambda step, inputs: compute_rounded(step, inputs, self.own.dtype))

    @cached_property
    def share(self) -> RoundedShare:
        """The share of correctly rounded numbers, and the least that libraries give."""
        shares = [measure_share(self.own.value, self.exact, made, self.own.dtype) for made in self.stated]
        known = [share for share in shares if share]
        return min(known, key=lambda share: share.predicted, default=RoundedShare(1, 1, 1))

    @cached_property
    def is_low(self) -> bool:
        """Returns whether libraries are more precise. Of a norm, whole rows may show it: they are too large
        or too small together where the root mean square was rounded."""
        if self.share.is_low or not self.is_norm:
            return self.share.is_low
        rows = self.exact.size // self.exact.shape[-1]
        limit = 1.5 + 6 / np.sqrt(2 * rows)  # six standard deviations of their root mean square
        return bool(self._row_error(self.own.value) > limit * max(map(self._row_error, self.stated)))

    @property
    def is_rounded_everywhere(self) -> bool:
        """Returns whether a rounding after every operation explains the numbers. The cells of a norm have
        one cause in each row, so that rows are compared and not cells; a rounded row is off by about u."""
        if self.is_norm:
            usual = max(self._row_error(self.rounded_everywhere), self.own.dtype.roundoff / 2)
            return self._row_error(self.own.value) <= ROW_ERROR * usual
        share = measure_share(self.own.value, self.exact, self.rounded_everywhere, self.own.dtype)
        return share is not None and not share._replace(found=share.found + ORDER).is_low

    @property
    def is_wide(self) -> bool:
        """Returns whether the numbers are better than a rounding after every operation gives."""
        if self.is_norm:
            return ROW_ERROR * self._row_error(self.own.value) < self._row_error(self.rounded_everywhere)
        share = measure_share(self.rounded_everywhere, self.exact, self.own.value, self.own.dtype)
        return share is not None and share.is_low

    def _row_error(self, made: Array) -> float:
        """Returns the root mean square, over rows, of the slope of the error on the value."""
        with np.errstate(all="ignore"):
            slopes = ((made - self.exact) * self.exact).sum(axis=-1) / (self.exact * self.exact).sum(axis=-1)
        return float(np.sqrt(np.nan_to_num(slopes**2).mean()))
