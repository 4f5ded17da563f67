"""Attention masks: which keys a query may attend to, a pure function of the two positions.

Masks are written with operators alone, so that they take arrays of NumPy and tensors of torch.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pellucid.parts import Part


class VisiblePast(NamedTuple):
    """The earlier positions that remain visible: the `first` positions, and the `last` before the query."""

    first: int
    last: int


LARGEST = 2**31


def describe_range_error(kind: str, what: str, value: int, least: int, means: str) -> str | None:
    """Returns why a number of positions is out of range; `means` says what the least means. None if it is
    not."""
    if least <= value <= LARGEST:
        return None
    return f"{kind} needs {what} from {least}, {means}, to {LARGEST:,}, not {value}."


@dataclass(frozen=True)
class MaskConfig(Part):
    family: ClassVar[str] = "masks"
    causal: ClassVar[bool] = False
    """Whether it is the plain causal mask, which kernels have built in."""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        """Returns True [… T S] where the query at a position [… T] may attend to the key at a position [… S];
        None if all may."""
        return None

    @property
    def bidirectional_prefix(self) -> float:
        """The number of first positions that attend to later ones among them, and so must be read in one
        call; infinite if all do, so that nothing can be cached."""
        return 0

    @property
    def visible_past(self) -> VisiblePast | None:
        """The earlier positions that a cache must keep; None for all."""
        return None
