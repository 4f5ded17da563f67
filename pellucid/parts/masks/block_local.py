"""The block-local mask: the sequence is divided into blocks, and attention is causal within each."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, VisiblePast, describe_range_error


@dataclass(frozen=True)
class BlockLocal(MaskConfig):
    formula: ClassVar[str] = "j ≤ i and ⌊j / size⌋ = ⌊i / size⌋"
    source: ClassVar[str] = "Liu et al. 2018, arXiv:1801.10198 (local attention)"

    size: int = field(metadata={"example": 8192})
    """Positions of a block; Llama 4 has 8192.
    Example: 8192"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        i, j = queries[..., :, None], keys[..., None, :]
        return (j <= i) & (j // self.size == i // self.size)

    @property
    def visible_past(self) -> VisiblePast:
        return VisiblePast(0, self.size)

    def check(self, config: ConfigLike) -> str | None:
        return describe_range_error(self.kind, "a size", self.size, 1, "the position alone")
