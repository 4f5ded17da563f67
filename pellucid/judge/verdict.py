"""The verdict on a number, a run or a claim, and the record that carries it.

A check of `verify` ends in a `Finding`, and so does each value of `compare`; a `VerifyReport` is all of them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pellucid.format import pluralize


class Verdict(StrEnum):
    """What a comparison concludes; the text is what people and JSON read."""

    EQUAL = "equal"
    """Within the tolerance for float64, or bit for bit where that is claimed."""
    NOISE = "noise"
    """Different, and rounding explains how much."""
    LOW_PRECISION = "low precision"
    """Within what rounding explains, but systematically more than the stated arithmetic: computed in a lower
    precision than stated."""
    BUG = "BUG"
    """Different by more than rounding can explain."""
    DIFFERENT = "different"
    """Each value follows from its own inputs, but the two runs were given different weights."""
    UNKNOWN = "cannot tell"
    """Too few values were recorded to bound the rounding error between them."""
    SKIPPED = "skipped"
    """Not checked: the claim does not apply, or a program that it needs is missing."""

    @property
    def is_failure(self) -> bool:
        return self in (Verdict.BUG, Verdict.LOW_PRECISION, Verdict.DIFFERENT)


_SEVERITY = (
    Verdict.SKIPPED,
    Verdict.EQUAL,
    Verdict.NOISE,
    Verdict.UNKNOWN,
    Verdict.DIFFERENT,
    Verdict.LOW_PRECISION,
    Verdict.BUG,
)


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim about a model, or on one value of a run."""

    verdict: Verdict
    measured: str
    """The figure with its unit, or the reason why nothing was measured."""
    at: str = ""
    """Where a bug is: the name of a value, or the span of values that ends in it."""
    message: str = ""
    """The lines that explain a bug: both numbers, and the formula of the right one."""
    name: str = ""
    """The name of the check or of the value."""
    claim: str = ""
    """What a check asserts, a complete sentence."""
    allowed: str = ""
    """The error budget, with its unit."""
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Returns the finding of a check as text: the claim, the figure, and the message about a bug."""
        budget = "" if self.verdict is Verdict.SKIPPED else f"  (allowed: {self.allowed})"
        lines = [
            f"{self.verdict:<13} {self.name:<19}{self.claim}",
            f"{'':<33}{self.measured}{budget}  {self.seconds:.1f} s",
        ]
        if self.verdict.is_failure:
            lines += (
                f"{'':<14}{line}" for line in (f"{self.verdict} at {self.at}", *self.message.splitlines())
            )
        return lines

    def as_data(self) -> dict[str, Any]:
        """Returns what `verify --json` prints for a check."""
        return {
            "check": self.name,
            "claim": self.claim,
            "budget": self.allowed,
            "verdict": str(self.verdict),
            "measured": self.measured,
            "at": self.at,
            "message": self.message,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class VerifyReport:
    """The findings of `verify`, in the order of the checks. It is true where there is no bug."""

    findings: tuple[Finding, ...]
    not_run: tuple[str, ...] = ()
    """The checks after a required one that found a bug."""

    @property
    def verdict(self) -> Verdict:
        return max((finding.verdict for finding in self.findings), key=_SEVERITY.index)

    @property
    def bugs(self) -> list[Finding]:
        """The findings that are a failure: bugs, and a lower precision than stated."""
        return [finding for finding in self.findings if finding.verdict.is_failure]

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def __getitem__(self, name: str) -> Finding:
        """Returns the finding of the check of that name."""
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        return "\n".join([*(line for finding in self.findings for line in finding.lines()), self.summary()])

    def summary(self) -> str:
        """Returns one line: how many checks were made, which were not, and where the bugs are."""
        skipped = [finding.name for finding in self.findings if finding.verdict is Verdict.SKIPPED]
        seconds = sum(finding.seconds for finding in self.findings)
        text = f"{pluralize(len(self.findings) - len(skipped), 'check')} in {seconds:.0f} s"
        text += f"; not checked: {', '.join(skipped)}" if skipped else ""
        if not self.bugs:
            return f"no bug found. {text}."
        names = ", ".join(f"{bug.name} (at {bug.at})" for bug in self.bugs)
        return f"do not trust it yet. {text}; {len(self.bugs)} found a bug: {names}."
