"""The verdict on another program's run: what `compare` returns, and what it prints."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pellucid.format import pluralize
from pellucid.judge.deviation import Deviation, format_apart
from pellucid.judge.mismatch import Mismatch
from pellucid.judge.verdict import Finding, Verdict

SHOWN = 3
"""How many further bugs and different weights are listed by name."""


@dataclass(frozen=True)
class RunReport:
    """Every recorded value judged, in the order of the program. It is true where nothing is wrong."""

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
    note: str = ""
    """What was done to the run before it was judged, such as another order of channels."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(value.finding for value in self.values)

    @property
    def bugs(self) -> list[Deviation]:
        return [value for value in self.values if value.verdict is Verdict.BUG]

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
        if self.mismatch and not all(value.is_bounded for value in self.values):
            return Verdict.UNKNOWN
        is_equal = all(value.verdict is Verdict.EQUAL for value in self.values) and not self.mismatch
        return Verdict.EQUAL if is_equal else Verdict.NOISE

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def summarize(self) -> Finding:
        """Returns one finding for the whole run: the first bug, else the value nearest to its limit."""
        if self.bugs:
            first = self.bugs[0]
            return Finding(Verdict.BUG, first.used, first.place, str(self))
        if self.verdict is Verdict.UNKNOWN:
            return Finding(Verdict.SKIPPED, str(self).partition("\n")[0])
        count = pluralize(len(self.values), "value")
        if self.worst is None or not self.worst.units:
            return Finding(Verdict.EQUAL, count)
        return Finding(self.verdict, f"{self.worst.used} at {self.worst.name}, {count}")

    def __str__(self) -> str:
        write: dict[Verdict, Callable[[], list[str]]] = {
            Verdict.EQUAL: lambda: [f"equal: {self._count}"],
            Verdict.NOISE: self._noise_lines,
            Verdict.BUG: self._bug_lines,
            Verdict.DIFFERENT: self._different_lines,
            Verdict.UNKNOWN: self._unknown_lines,
        }
        lines = write[self.verdict]()
        if self.not_compared:
            names = pluralize(len(self.not_compared), "name")
            lines.append(f"  not compared, {names} of theirs: {', '.join(self.not_compared[:5])}")
        return "\n".join(lines)

    @property
    def _count(self) -> str:
        return pluralize(len(self.values), "value")

    def _noise_lines(self) -> list[str]:
        lines = [f"noise: {self._count}, each follows from its own inputs"]
        if self.worst and self.worst.units:
            lines += [f"  the largest error: {self.worst.place}", f"  {self.worst}"]
        return [*lines, *self._mismatch_lines()]

    def _different_lines(self) -> list[str]:
        first = f"different: {self._count}, each follows from its own inputs, of other weights"
        return [first, *self._weight_lines(), *self._mismatch_lines(), *self.formula.splitlines()]

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

    def as_data(self) -> dict[str, Any]:
        """Returns what `compare --json` prints; infinities and NaN are strings, which JSON can hold."""
        return {
            "verdict": str(self.verdict),
            "at": self.bugs[0].place if self.bugs else None,
            "message": self.formula or None,
            "explained_by": list(self.explained_by),
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


@dataclass(frozen=True)
class ArraysReport:
    """The plain difference of two sets of arrays. It is true where they are equal."""

    count: int
    mismatch: Mismatch | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        return Verdict.DIFFERENT if self.mismatch else Verdict.EQUAL

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def __str__(self) -> str:
        if self.mismatch is None:
            return f"equal: {pluralize(self.count, 'value')}"
        return (
            f"different (no program is known, so rounding cannot be separated from a bug)\n  {self.mismatch}"
        )

    def as_data(self) -> dict[str, Any]:
        """Returns what `compare --json` prints for two files of arrays."""
        mismatch = None if self.mismatch is None else str(self.mismatch)
        return {"verdict": str(self.verdict), "values": self.count, "departure": mismatch}
