"""The sliding window: a query attends to its own position and the few before it.

Through n layers information travels further than one window: n · (size − 1) positions.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, VisiblePast, describe_range_error


@dataclass(frozen=True)
class Window(MaskConfig):
    formula: ClassVar[str] = "j ≤ i and i − j < size"
    source: ClassVar[str] = "Beltagy et al. 2020, arXiv:2004.05150; Jiang et al. 2023, arXiv:2310.06825"

    size: int = field(metadata={"example": 4096})
    """Visible positions, the query's own included; Mistral has 4096.
    Example: 4096"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        back = queries[..., :, None] - keys[..., None, :]
        return (back >= 0) & (back < self.size)

    @property
    def visible_past(self) -> VisiblePast:
        return VisiblePast(0, self.size)

    def check(self, config: ConfigLike) -> str | None:
        return describe_range_error(self.kind, "a size", self.size, 1, "the position alone")
