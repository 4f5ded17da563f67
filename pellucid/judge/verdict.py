"""The verdict on somebody's run: equal, noise and how much, BUG at a name, or different, where other weights
were given; told so that one can act."""

from dataclasses import dataclass

from pellucid.explain.expression import figure
from pellucid.judge.mismatch import Mismatch
from pellucid.reference.op import Index


@dataclass(frozen=True)
class Judged:
    """One recorded value: its worst cell, how many units it is off, and how many rounding may use.

    `since` is the recorded value that it was recomputed from, where steps between were not recorded.
    """

    name: str
    address: str
    index: Index
    got: float
    wanted: float
    units: float
    allowed: float
    given: str = ""
    """"param" or "leaf": a value that no step made."""
    since: str | None = None
    excused: bool = False
    """As equal as was asked for, however many units that is."""
    fits: str = ""
    """Another operation, whose numbers they are: told apart where rounding would hide the difference."""

    replayed: str = ""
    """The type of the replay whose error is the unit; none where the unit is u · Σ|terms|."""
    layout: str = ""
    """The order of channels in which their numbers would be right."""
    told: bool = True
    """Whether there is any bound: none is left where all of a long way is hidden."""

    @property
    def share(self) -> float:
        """The part of its budget that the error uses."""
        return self.units / self.allowed

    @property
    def differs(self) -> bool:
        return not self.excused and (bool(self.fits) or self.units > self.allowed)

    @property
    def is_bug(self) -> bool:
        """A weight that differs is another model's, and no bug of whoever computed with it."""
        return self.differs and self.given != "param"

    @property
    def place(self) -> str:
        """The name, or the span of names that it ends."""
        if self.since is None:
            return self.name
        scope, dot, _ = self.since.rpartition(".")
        return f"{self.since} … {self.name.removeprefix(scope + dot)}"

    def __str__(self) -> str:
        got, wanted = _apart(self.got, self.wanted)
        why = f"{figure(self.units, 3)} units of rounding, {figure(self.allowed, 3)} allowed"
        if self.replayed:
            why = (
                f"{figure(self.units, 3)} times the error of a replay in {self.replayed}, "
                f"{figure(self.allowed, 3)} allowed"
            )
        if self.layout:
            why = f"these are the numbers in the order of {self.layout}: give --layout {self.layout}"
        elif self.fits:
            why = f"these are the numbers of {self.fits}"
        return f"{self.address}: {got}, where its inputs give {wanted}: {why}"


@dataclass(frozen=True)
class Replayed:
    """Every recorded value judged. `departure` is the first that is not what the specification itself gives
    (the first computed one, where weights differ); `story` is the formula of the first bug, else of that one,
    with their numbers in it."""

    values: tuple[Judged, ...]
    departure: Mismatch | None = None
    departs_at: str = ""
    story: str = ""
    explained_by: tuple[str, ...] = ()
    """The usual mistakes that would give the numbers of the first bug."""

    @property
    def bugs(self) -> list[Judged]:
        return [value for value in self.values if value.is_bug]

    @property
    def worst(self) -> Judged | None:
        """The value that uses the largest part of its budget."""
        return max(self.values, key=lambda value: value.share, default=None)

    @property
    def given_differently(self) -> list[Judged]:
        return [value for value in self.values if value.differs and value.given == "param"]

    @property
    def verdict(self) -> str:
        if self.bugs:
            return "BUG"
        if self.given_differently:
            return "different"
        if self.departure and not all(value.told for value in self.values):
            return "cannot tell"
        same = all(value.excused or not value.units for value in self.values)
        return "equal" if same and not self.departure else "noise"

    def __bool__(self) -> bool:
        """Whether all is well."""
        return self.verdict not in ("BUG", "different")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        count = f"{len(self.values)} value{'s' * (len(self.values) != 1)}"
        if self.verdict == "equal":
            return [f"equal: {count}"]
        if self.verdict == "different":
            lines = [f"different: {count}, each follows from its own inputs, of other weights"]
            return [*lines, *self._given(), *self._drift(), *self.story.splitlines()]
        if self.verdict == "cannot tell":
            hidden = next(value for value in self.values if not value.told)
            lines = [f"cannot tell: too much is hidden in {hidden.place}; record more values"]
            return [*lines, *self._drift()]
        if self.verdict == "noise":
            lines = [f"noise: {count}, each follows from its own inputs"]
            if self.worst and self.worst.units:
                lines.append(f"  the largest error: {self.worst.place}")
                lines.append(f"  {self.worst}")
            return [*lines, *self._drift()]
        first, *others = self.bugs
        lines = [f"BUG at {first.place}"]
        if first.given:
            got, wanted = _apart(first.got, first.wanted)
            lines.append(
                f"  {first.address} is given, and the two runs were not given the same: "
                f"theirs {got}, ours {wanted}"
            )
        else:
            lines += [f"  {first}", *self.story.splitlines()]
        if self.explained_by:
            lines.append(f"  these numbers fit a usual mistake: {'; or '.join(self.explained_by[:3])}")
        names = ", ".join(bug.place for bug in others[:3]) + (" …" if len(others) > 3 else "")
        rest = f"{len(others)} more: {names}" if others else "all others follow from their own inputs"
        lines.append(f"  of {count}, {rest}")
        lines += self._given()
        return lines + (self._drift() if self.departure and self.departure.name != first.name else [])

    def _given(self) -> list[str]:
        """The first few weights that are others, and how many more."""
        lines = []
        for value in self.given_differently[:3]:
            got, wanted = _apart(value.got, value.wanted)
            lines.append(f"  given differently: {value.address}: theirs {got}, ours {wanted}")
        if more := len(self.given_differently) - len(lines):
            lines.append(f"  given differently: {more} more")
        return lines

    def _drift(self) -> list[str]:
        if self.departure is None:
            return []
        if not self.departure.index and self.departure.note:
            return [f"  the first that departs from ours: {self.departure}"]
        got, wanted = _apart(self.departure.got, self.departure.wanted)
        return [f"  the first that departs from ours: {self.departs_at}: theirs {got}, ours {wanted}"]


def _apart(a: float, b: float) -> tuple[str, str]:
    """Two numbers, with as many digits as it takes to tell them apart."""
    digits = next((n for n in range(6, 17) if figure(a, n) != figure(b, n)), 17)
    return figure(a, digits), figure(b, digits)
