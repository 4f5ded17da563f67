"""Which positions a position may look at: a pure function of the two positions.

Written with operators alone, so that each engine gives it arrays of its own kind.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pellucid.parts import Part


class VisiblePast(NamedTuple):
    """The past that can still be seen: the first so many positions, and the last so many."""

    first: int
    last: int


LARGEST = 2**31


def describe_range_error(kind: str, what: str, value: int, least: int, means: str) -> str | None:
    """Why a count of positions cannot be; `means` says what the least of them is. None where it can."""
    if least <= value <= LARGEST:
        return None
    return f"{kind} needs {what} from {least}, {means}, to {LARGEST:,}, not {value}."


@dataclass(frozen=True)
class MaskConfig(Part):
    family: ClassVar[str] = "masks"
    causal: ClassVar[bool] = False
    """Whether it is the plain causal mask, which kernels know without a table."""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        """True [… T S] where the query's position [… T] may look at the key's [… S]; None where all may."""
        return None

    @property
    def bidirectional_prefix(self) -> float:
        """How many of the first positions see later ones among them, and so must be read in one call;
        infinite where all do, and nothing can be kept."""
        return 0

    @property
    def visible_past(self) -> VisiblePast | None:
        """What of the past a cache must keep; None for all of it."""
        return None
