"""The deviation of one recorded value from the result that its own inputs give, at its worst cell."""

from dataclasses import dataclass

from pellucid.explain.expression import figure
from pellucid.judge.verdict import Finding, Verdict
from pellucid.reference.op import Index


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
    rerun_type: str = ""
    """The type, where the unit is the error of the same steps run in a narrower type; empty: u · Σ|terms|."""
    layout: str = ""
    """The order of channels in which the numbers would be right."""
    is_bounded: bool = True
    """Whether there is a bound: none is left over a long span of steps that were not recorded."""

    @property
    def share(self) -> float:
        """The part of the error budget that is used."""
        return self.units / self.allowed

    @property
    def verdict(self) -> Verdict:
        """Returns DIFFERENT for a weight: it belongs to another model, and no computation made it."""
        if self.is_equal:
            return Verdict.EQUAL
        if self.fits or self.units > self.allowed:
            return Verdict.DIFFERENT if self.given == "param" else Verdict.BUG
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
        return f"{self.units:.2g} of {self.allowed:.3g} {self.unit}"

    def __str__(self) -> str:
        got, wanted = format_apart(self.got, self.wanted)
        return f"{self.address}: {got}, where its inputs give {wanted}: {self._reason()}"

    def _reason(self) -> str:
        units, allowed = figure(self.units, 3), figure(self.allowed, 3)
        if self.layout:
            return f"these are the numbers in the order of {self.layout}: give --layout {self.layout}"
        if self.fits:
            return f"these are the numbers of {self.fits}"
        if self.rerun_type:
            return f"{units} times the error of the same steps in {self.rerun_type}, {allowed} allowed"
        return f"{units} units of rounding, {allowed} allowed"


def format_apart(a: float, b: float) -> tuple[str, str]:
    """Returns two numbers with as few digits as show that they differ.

    >>> format_apart(1.5, 2.5), format_apart(1.0000001, 1.0)
    (('1.5', '2.5'), ('1.0000001', '1'))
    """
    digits = next((n for n in range(6, 17) if figure(a, n) != figure(b, n)), 17)
    return figure(a, digits), figure(b, digits)
