"""The verdict on another program's run: what `compare` returns, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

from pellucid.base import notebook
from pellucid.base.formatting import format_number, pluralize
from pellucid.reference.op import Index
from pellucid.report.items import Line, Lines, OnPage, Table
from pellucid.report.report import Report, Reported
from pellucid.verification.mismatch import Mismatch
from pellucid.verification.verdict import Finding, Verdict


@dataclass(frozen=True)
class Deviation:
    """The worst cell of a value: its error in units of rounding, and how many units rounding may use."""

    name: str
    address: str
    """The cell: blocks.0.attn.q[h=1,t=2,d=0]."""
    index: Index
    got: float
    wanted: float
    units: float
    allowed: float
    given: str = ""
    """"param" or "leaf" for a value that no step computes; empty otherwise."""
    since: str | None = None
    """The recorded value from which this one was recomputed, where the steps between were not recorded."""
    is_equal: bool = False
    """Whether it is within the given tolerance, however many units that is."""
    fits: str = ""
    """Another operation that gives these numbers: a swap that the error budget is too wide to show."""
    bias: str = ""
    """By how much the cells are off on average, where rounding does not explain that (`precision.py`)."""
    rerun_type: str = ""
    """The type, where the unit is the error of the same steps run in a narrower type; empty: u · Σ|terms|."""
    layout: str = ""
    """The order of channels in which the numbers would be right."""
    low_precision: str = ""
    """How few numbers are correctly rounded, where they were computed in a lower precision than stated."""
    limit: float = 0.0
    """The smallest error of the whole value, relative to it, that would have been called a bug."""
    is_known: bool = True
    """Whether the program has a value of this name."""
    is_bounded: bool = True
    """Whether there is a bound: none is left over a long span of steps that were not recorded."""

    @classmethod
    def of_unknown(cls, name: str) -> Deviation:
        """Returns the bug of a value that the program does not have."""
        return cls(name, name, (), nan, nan, inf, 0.0, is_known=False)

    @property
    def share(self) -> float:
        """The part of the error budget that is used."""
        return self.units / self.allowed if self.allowed else self.units

    @property
    def verdict(self) -> Verdict:
        """Returns DIFFERENT for a weight: it belongs to another model, and no computation made it."""
        if self.is_equal:
            return Verdict.EQUAL
        if self.fits or self.bias or self.units > self.allowed:
            return Verdict.DIFFERENT if self.given == "param" else Verdict.BUG
        if self.low_precision:
            return Verdict.LOW_PRECISION
        return Verdict.NOISE if self.units else Verdict.EQUAL

    @property
    def is_bug(self) -> bool:
        return self.verdict is Verdict.BUG

    @property
    def place(self) -> str:
        """The name of the value, or the span of values that ends in it."""
        if self.since is None:
            return self.name
        scope, dot, _ = self.since.rpartition(".")
        return f"{self.since} … {self.name.removeprefix(scope + dot)}"

    @property
    def finding(self) -> Finding:
        allowed = f"{self.allowed:.3g} {self.unit}"
        return Finding(self.verdict, self.used, self.place, str(self), self.name, allowed=allowed)

    @property
    def unit(self) -> str:
        return f"times a rerun's error in {self.rerun_type}" if self.rerun_type else "units"

    @property
    def used(self) -> str:
        """The error and its budget: "3.1 of 9.4 units"."""
        if not self.is_known:
            return "a value that the program does not have"
        return f"{self.units:.2g} of {self.allowed:.3g} {self.unit}"

    def __str__(self) -> str:
        if not self.is_known:
            return f"{self.name}: only their run computes a value of this name; the program has none"
        got, wanted = format_apart(self.got, self.wanted)
        return f"{self.address}: {got}, where its inputs give {wanted}: {self._reason()}"

    def _reason(self) -> str:
        units, allowed = format_number(self.units, 3), format_number(self.allowed, 3)
        if self.layout:
            return f"these are the numbers in the order of {self.layout}: give --layout {self.layout}"
        if self.fits:
            return f"these are the numbers of {self.fits}"
        if self.bias and self.units <= self.allowed:
            return self.bias
        if self.low_precision:
            return f"computed in a lower precision than stated: {self.low_precision}"
        if self.rerun_type:
            return f"{units} times the error of the same steps in {self.rerun_type}, {allowed} allowed"
        return f"{units} units of rounding, {allowed} allowed"


def format_apart(a: float, b: float) -> tuple[str, str]:
    """Returns two numbers with as few digits as show that they differ.

    >>> format_apart(1.5, 2.5), format_apart(1.0000001, 1.0)
    (('1.5', '2.5'), ('1.0000001', '1'))
    """
    digits = next((n for n in range(6, 17) if format_number(a, n) != format_number(b, n)), 17)
    return format_number(a, digits), format_number(b, digits)


SHOWN = 3
"""How many further bugs and different weights are listed by name."""


@dataclass(frozen=True, repr=False)
class RunReport(Reported):
    """Every recorded value judged, in the order of the program. It is true where nothing is wrong.

    Print it to read it; a notebook shows a table."""

    values: tuple[Deviation, ...]
    mismatch: Mismatch | None = None
    """The first value that differs from the specification's own run; where weights differ, the first that a
    step computes. Rounding alone causes one: it shows how far the runs are apart, and is not yet a bug."""
    mismatch_at: str = ""
    formula: str = ""
    """The formula of the first bug, else of the mismatch, with the recorded numbers in it."""
    explained_by: tuple[str, ...] = ()
    """The usual mistakes that would give the numbers of the first bug, the best fit first."""
    not_compared: tuple[str, ...] = ()
    """Recorded names that have no counterpart in the program."""
    undecided: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The values to record, each with the usual mistakes that it would decide and that the recorded values do
    not exclude (`decidable.py`)."""
    remark: str = ""
    """How the other program rounds, where that is unusual and right."""
    note: str = ""
    """What was done to the run before it was judged, such as another order of channels."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(value.finding for value in self.values)

    @property
    def bugs(self) -> list[Deviation]:
        return [value for value in self.values if value.verdict is Verdict.BUG]

    @property
    def low_precision(self) -> list[Deviation]:
        """The values that were computed in a lower precision than stated."""
        return [value for value in self.values if value.verdict is Verdict.LOW_PRECISION]

    @property
    def different_weights(self) -> list[Deviation]:
        return [value for value in self.values if value.verdict is Verdict.DIFFERENT]

    @property
    def worst(self) -> Deviation | None:
        """The value that uses the largest part of its error budget."""
        return max(self.values, key=lambda value: value.share, default=None)

    @property
    def verdict(self) -> Verdict:
        if self.bugs:
            return Verdict.BUG
        if self.different_weights:
            return Verdict.DIFFERENT
        if self.low_precision:
            return Verdict.LOW_PRECISION
        if self.mismatch and not all(value.is_bounded for value in self.values):
            return Verdict.UNKNOWN
        if self.undecided:
            return Verdict.NO_BUG_SEEN
        is_equal = all(value.verdict is Verdict.EQUAL for value in self.values) and not self.mismatch
        return Verdict.EQUAL if is_equal else Verdict.NOISE

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def __repr__(self) -> str:
        return notebook.summarize("RunReport", str(self).partition("\n")[0], ())

    def report(self) -> Report:
        first, *more = "\n".join(self.to_lines()).splitlines()
        rows = [[value.place, str(value.verdict), value.used] for value in self.values]
        return Report(
            "A run against what its own inputs give",
            first,
            [
                [Lines(lambda width: [first]), Lines(lambda width: more, is_on_page=bool(more))],
                [OnPage(Table([["value", "verdict", "error"], *rows]))],
            ],
            to_data=self.to_data,
        )

    def summarize(self) -> Finding:
        """Returns one finding for the whole run: the first value that fails, else the one nearest to its
        limit."""
        failed = (value for value in self.values if value.verdict in (Verdict.BUG, Verdict.LOW_PRECISION))
        first = next(failed, None)
        if first is not None and first.low_precision:
            message = "\n".join(self._low_precision_lines())
            return Finding(Verdict.LOW_PRECISION, first.low_precision, first.place, message)
        if first is not None:
            return Finding(Verdict.BUG, first.used, first.place, str(self))
        if self.verdict is Verdict.UNKNOWN:
            return Finding(Verdict.SKIPPED, str(self).partition("\n")[0])
        count = pluralize(len(self.values), "value")
        if self.worst is None or not self.worst.units:
            return Finding(Verdict.EQUAL, count)
        return Finding(self.verdict, f"{self.worst.used} at {self.worst.name}, {count}")

    def to_lines(self) -> list[str]:
        """Returns the verdict as text: what it is, where, and why."""
        write: dict[Verdict, Callable[[], list[str]]] = {
            Verdict.EQUAL: lambda: [f"equal: {self._count}"],
            Verdict.NOISE: self._noise_lines,
            Verdict.BUG: self._bug_lines,
            Verdict.DIFFERENT: self._different_lines,
            Verdict.NO_BUG_SEEN: self._undecided_lines,
            Verdict.UNKNOWN: self._unknown_lines,
            Verdict.LOW_PRECISION: self._low_precision_lines,
        }
        lines = write[self.verdict]()
        if self.not_compared:
            names = pluralize(len(self.not_compared), "name")
            lines.append(f"  not compared, {names} of theirs: {', '.join(self.not_compared[:5])}")
        return lines

    @property
    def _count(self) -> str:
        return pluralize(len(self.values), "value")

    def _noise_lines(self) -> list[str]:
        lines = [f"noise: {self._count}, each follows from its own inputs"]
        if self.worst and self.worst.units:
            lines += [f"  the largest error: {self.worst.place}", f"  {self.worst}"]
        lines += [f"  {self.remark}"] if self.remark else []
        return [*lines, *self._mismatch_lines()]

    def _different_lines(self) -> list[str]:
        first = f"different: {self._count}, each follows from its own inputs, of other weights"
        return [first, *self._weight_lines(), *self._mismatch_lines(), *self.formula.splitlines()]

    def _undecided_lines(self) -> list[str]:
        hidden = [*dict.fromkeys(mistake for _, mistakes in self.undecided for mistake in mistakes)]
        names = ", ".join(name for name, _ in self.undecided)
        rest = f"; and {len(hidden) - SHOWN} more" if hidden[SHOWN:] else ""
        lines = [
            f"  {name} would show: {'; '.join(mistakes[:SHOWN])}{' …' if mistakes[SHOWN:] else ''}"
            for name, mistakes in self.undecided
            if mistakes
        ]
        return [
            f"no bug seen; these mistakes could hide: {'; '.join(hidden[:SHOWN])}{rest}",
            f"  {self._count} within rounding, with these mistakes too; record {names}",
            *lines,
            *self._mismatch_lines(),
        ]

    def _unknown_lines(self) -> list[str]:
        hidden = next(value for value in self.values if not value.is_bounded)
        first = f"cannot tell: too many steps of {hidden.place} are not recorded; record more values"
        return [first, *self._mismatch_lines()]

    def _bug_lines(self) -> list[str]:
        first, *others = self.bugs
        lines = [f"BUG at {first.place}"]
        if first.given:
            got, wanted = format_apart(first.got, first.wanted)
            lines.append(
                f"  {first.address} is given, and the two runs were not given the same: "
                f"theirs {got}, ours {wanted}"
            )
        else:
            lines += [f"  {first}", *self.formula.splitlines()]
        if self.explained_by:
            lines.append(f"  these numbers fit a usual mistake: {'; or '.join(self.explained_by[:SHOWN])}")
        names = ", ".join(bug.place for bug in others[:SHOWN]) + (" …" if len(others) > SHOWN else "")
        rest = f"{len(others)} more: {names}" if others else "all others follow from their own inputs"
        lines += [f"  of {self._count}, {rest}", *self._weight_lines()]
        return lines + (self._mismatch_lines() if self.mismatch and self.mismatch.name != first.name else [])

    def _low_precision_lines(self) -> list[str]:
        first, *others = self.low_precision
        lines = [f"computed in a lower precision than stated: {first.place}", f"  {first}"]
        names = ", ".join(value.place for value in others[:SHOWN]) + (" …" if len(others) > SHOWN else "")
        return [*lines, *([f"  and {len(others)} more: {names}"] if others else [])]

    def _weight_lines(self) -> list[str]:
        lines = []
        for value in self.different_weights[:SHOWN]:
            got, wanted = format_apart(value.got, value.wanted)
            lines.append(f"  given differently: {value.address}: theirs {got}, ours {wanted}")
        if more := len(self.different_weights) - len(lines):
            lines.append(f"  given differently: {more} more")
        return lines

    def _mismatch_lines(self) -> list[str]:
        if self.mismatch is None:
            return []
        if not self.mismatch.index and self.mismatch.note:
            return [f"  the first value that departs from ours: {self.mismatch}"]
        got, wanted = format_apart(self.mismatch.got, self.mismatch.wanted)
        return [f"  the first value that departs from ours: {self.mismatch_at}: theirs {got}, ours {wanted}"]

    def to_data(self) -> dict[str, Any]:
        """Returns what `compare --json` prints; infinities and NaN are strings, which JSON can hold."""
        return {
            "verdict": str(self.verdict),
            "at": self.bugs[0].place if self.bugs else None,
            "message": self.formula or None,
            "explained_by": list(self.explained_by),
            "record": [name for name, _ in self.undecided],
            "undecided": {name: list(mistakes) for name, mistakes in self.undecided},
            "given_differently": [value.name for value in self.different_weights],
            "departure": self.mismatch and {
                "at": self.mismatch_at,
                "theirs": _as_json(self.mismatch.got),
                "ours": _as_json(self.mismatch.wanted),
            },
            "values": [
                {
                    "name": value.name,
                    "span_since": value.since,
                    "at": value.address,
                    "theirs": _as_json(value.got),
                    "from_their_inputs": _as_json(value.wanted),
                    "units": _as_json(value.units),
                    "allowed": value.allowed,
                    "unit": f"a replay in {value.rerun_type}" if value.rerun_type else "u · Σ|terms|",
                    "bug": value.is_bug,
                }
                for value in self.values
            ],
            "not_compared": list(self.not_compared),
        }  # fmt: skip


def _as_json(value: float) -> float | str:
    return value if isfinite(value) else str(value)


@dataclass(frozen=True, repr=False)
class ArraysReport(Reported):
    """The plain difference of two sets of arrays. It is true where they are equal."""

    count: int
    mismatch: Mismatch | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        return Verdict.DIFFERENT if self.mismatch else Verdict.EQUAL

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def __repr__(self) -> str:
        return notebook.summarize("ArraysReport", str(self).partition("\n")[0], ())

    def report(self) -> Report:
        lines = [f"equal: {pluralize(self.count, 'value')}"]
        if self.mismatch is not None:
            lines = ["different (no program is known, so rounding cannot be separated from a bug)"]
            lines += [f"  {self.mismatch}"]
        return Report(
            "Two sets of arrays",
            lines[0],
            [[*map(Line, "\n".join(lines).splitlines())]],
            to_data=self.to_data,
        )

    def to_data(self) -> dict[str, Any]:
        """Returns what `compare --json` prints for two files of arrays."""
        mismatch = None if self.mismatch is None else str(self.mismatch)
        return {"verdict": str(self.verdict), "values": self.count, "departure": mismatch}
