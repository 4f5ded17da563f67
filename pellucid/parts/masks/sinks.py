"""Attention sinks: a sliding window, and the first few positions that stay visible to every query.

Positions keep their numbers; StreamingLLM renumbers them within its cache.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, VisiblePast, describe_range_error


@dataclass(frozen=True)
class Sinks(MaskConfig):
    formula: ClassVar[str] = "j ≤ i and (i − j < size or j < tokens)"
    source: ClassVar[str] = "Xiao et al. 2023, arXiv:2309.17453"

    tokens: int = field(metadata={"example": 4})
    """First positions that stay visible, the sinks; the paper has 4.
    Example: 4"""
    size: int = field(metadata={"example": 1020})
    """Positions of the window, the query's own included.
    Example: 1020"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        i, j = queries[..., :, None], keys[..., None, :]
        return (j <= i) & ((i - j < self.size) | (j < self.tokens))

    @property
    def visible_past(self) -> VisiblePast:
        return VisiblePast(self.tokens, self.size)

    def check(self, config: ConfigLike) -> str | None:
        tokens = describe_range_error(self.kind, "tokens", self.tokens, 0, "a plain window")
        return tokens or describe_range_error(self.kind, "a size", self.size, 1, "the position alone")
