"""The verdict on a number, a run or a claim, and the record that carries it.

A check of `verify` ends in a `Finding`, and so does each value of `compare`; a `VerifyReport` is all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pellucid.base.formatting import escape_controls, pluralize
from pellucid.report.items import Lines, OnPage, Table
from pellucid.report.report import Report, Reported


class Verdict(StrEnum):
    """The conclusion of a comparison, in the words that people and JSON read; the gravest is the last."""

    SKIPPED = "skipped"
    """Not checked: the claim does not apply, or a program that it needs is missing."""
    EQUAL = "equal"
    """Within the tolerance for float64, or bit for bit where that is claimed."""
    RIGHT = "right"
    """Every other reading that a text can tell apart from the given one is worse on it."""
    NOISE = "noise"
    """Different, and rounding explains how much."""
    NO_BUG_SEEN = "no bug seen"
    """As noise, but the recorded values do not exclude every usual mistake."""
    UNKNOWN = "cannot tell"
    """Too few values were recorded to bound the rounding error between them."""
    DIFFERENT = "different"
    """Each value follows from its own inputs, but the two runs were given different weights."""
    LOW_PRECISION = "low precision"
    """Within what rounding explains, but systematically more than the stated arithmetic: computed in a lower
    precision than stated."""
    BUG = "BUG"
    """Different by more than rounding can explain."""

    @property
    def is_failure(self) -> bool:
        return self in (Verdict.BUG, Verdict.LOW_PRECISION, Verdict.DIFFERENT)

    @property
    def gravity(self) -> int:
        return list(Verdict).index(self)


class Judged(StrEnum):
    """The thing that a check judges, to be mended where it finds a bug and those before it find none."""

    MODEL = "your model and files"
    """Weights, config, tokenizer and templates, as other programs read them and as texts fit them."""
    MACHINE = "this machine and build"
    """Arithmetic in a type, compiled code, threads and kernels: the processor, the compiler, PyTorch."""
    PROGRAM = "this program"
    """Code that would be wrong on every machine and with every model."""

    @property
    def place(self) -> str:
        """The words for it in a sentence about a bug: "your model or its files"."""
        return self.replace(" and ", " or its ")


SHOWN = 4
"""Things that are not decided, of which each line names the first."""


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
    undecided: tuple[str, ...] = ()
    """The things that a check could not decide, of those that it judges."""
    judges: Judged | None = None
    """The thing that a check judges; None of a value of another run."""
    model: str = ""
    """The model, where a report is of several."""
    trusts: str = ""
    """The parts of the package that a check of a run takes as right."""

    def lines(self, is_verbose: bool = False) -> list[str]:
        """Returns the finding of a check as text: one line, and the message about a bug; where it is verbose,
        the figure, its budget, the time, and what it judges and trusts as well."""
        lines = [f"{self.verdict:<13} {self.name:<19}{self.claim}"]
        if is_verbose:
            budget = "" if self.verdict is Verdict.SKIPPED else f"  (allowed: {self.allowed})"
            judges = f"  judges {self.judges}" if self.judges else ""
            lines += [f"{'':<33}{self.measured}{budget}  {self.seconds:.1f} s{judges}"]
            lines += [f"{'':<33}trusts {self.trusts}"] * bool(self.trusts)
        elif self.undecided:
            more = f" and {len(self.undecided) - SHOWN} more" if len(self.undecided) > SHOWN else ""
            shown = f"{', '.join(self.undecided[:SHOWN])}{more}"
            lines += [f"{'':<33}cannot tell: {shown}; a longer --text may decide"]
        if self.verdict.is_failure:
            lines += (
                f"{'':<14}{line}" for line in (f"{self.verdict} at {self.at}", *self.message.splitlines())
            )
        return lines

    def to_data(self) -> dict[str, Any]:
        """Returns what `verify --json` prints for a check."""
        return {
            **({"model": self.model} if self.model else {}),
            "check": self.name,
            "claim": self.claim,
            "judges": self.judges,
            **({"trusts": self.trusts} if self.trusts else {}),
            "budget": self.allowed,
            "verdict": str(self.verdict),
            "measured": self.measured,
            "at": self.at,
            "message": self.message,
            "seconds": round(self.seconds, 3),
            "undecided": list(self.undecided),
        }


@dataclass(frozen=True, repr=False)
class VerifyReport(Reported):
    """The findings of `verify`, in the order of the checks. It is true where there is no bug.

    Print it to read it; a notebook shows a table."""

    findings: tuple[Finding, ...]
    not_run: tuple[str, ...] = ()
    """The checks after a required one that found a bug."""

    @property
    def verdict(self) -> Verdict:
        verdicts = (finding.verdict for finding in self.findings)
        return max(verdicts, key=lambda verdict: verdict.gravity, default=Verdict.SKIPPED)

    @property
    def bugs(self) -> list[Finding]:
        """The findings that are a failure: bugs, and a lower precision than stated."""
        return [finding for finding in self.findings if finding.verdict.is_failure]

    def __bool__(self) -> bool:
        return not self.verdict.is_failure

    def __getitem__(self, name: str) -> Finding:
        """Returns the finding of the check of that name, of several models the gravest."""
        found = [finding for finding in self.findings if finding.name == name]
        if not found:
            raise KeyError(name)
        return max(found, key=lambda finding: finding.verdict.gravity)

    @property
    def by_model(self) -> "dict[str, VerifyReport]":
        """The report on each of several models, by its name."""
        names = dict.fromkeys(finding.model for finding in self.findings)
        return {
            name: VerifyReport(tuple(finding for finding in self.findings if finding.model == name))
            for name in names
            if name
        }

    def __repr__(self) -> str:
        return escape_controls(f"<VerifyReport: {self.summary()}>", keep="")

    def report(self) -> Report:
        rows = [
            [
                str(one.verdict),
                f"{one.model} {one.name}".strip(),
                one.claim,
                f"{one.measured} {one.at and f'at {one.at}'}".strip(),
            ]
            for one in self.findings
        ]
        table = Table([["verdict", "check", "claim", "measured"], *rows], is_prose=True)
        messages = "\n\n".join(filter(None, (bug.message for bug in self.bugs)))
        return Report(
            "The checks of a model's numbers",
            self.summary(),
            [
                [Lines(lambda width: self.lines()), OnPage(table)],
                [OnPage(messages)],
            ],
            to_data=lambda: {"findings": [finding.to_data() for finding in self.findings]},
        )

    def lines(self, is_verbose: bool = False) -> list[str]:
        """Returns the report as text: what it concludes, then a line for each check, as `Finding.lines`;
        that on each of several models below its name."""
        lines = [line for finding in self.findings if not finding.model for line in finding.lines(is_verbose)]
        for model, report in self.by_model.items():
            lines += [f"{model}: {report.summary()}"]
            lines += [line for finding in report.findings for line in finding.lines(is_verbose)]
        if self.not_run:
            lines += [f"not run: {pluralize(len(self.not_run), 'check')}, because the weights are not finite"]
        return [self.summary(), *lines]

    def summary(self) -> str:
        """Returns one line: how many checks were made, which were not, where the bugs are, and in what."""
        made = [finding for finding in self.findings if finding.verdict is not Verdict.SKIPPED]
        tried = {finding.name for finding in made}
        skipped = dict.fromkeys(finding.name for finding in self.findings if finding.name not in tried)
        seconds = sum(finding.seconds for finding in self.findings)
        text = f"{pluralize(len(made), 'check')} in {seconds:.0f} s"
        text += f"; not checked: {', '.join(skipped)}" if skipped else ""
        unknown = [one.name for one in self.findings if one.verdict is Verdict.UNKNOWN]
        unknown += [f"{len(one.undecided)} of {one.name}" for one in self.findings if one.undecided]
        text += f"; cannot tell: {', '.join(unknown)}" if unknown else ""
        if not self.bugs:
            return f"no bug found. {text}."
        return f"do not trust it yet. {'; '.join((text, *self._describe_bugs()))}."

    def _describe_bugs(self) -> Iterator[str]:
        """Yields how many bugs there are in each thing that is judged, and where."""
        for judged in (*Judged, None):
            bugs = [bug for bug in self.bugs if bug.judges is judged]
            names = ", ".join(f"{bug.name}{bug.model and f' of {bug.model}'} (at {bug.at})" for bug in bugs)
            if bugs:
                yield f"{len(bugs)} found a bug{f' in {judged.place}' if judged else ''}: {names}"
