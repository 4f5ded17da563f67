"""The prefix mask: bidirectional within the first positions, causal after them."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, describe_range_error


@dataclass(frozen=True)
class Prefix(MaskConfig):
    formula: ClassVar[str] = "j ≤ i or j < length"
    source: ClassVar[str] = "Raffel et al. 2019, arXiv:1910.10683, section 3.2.1"

    length: int = field(metadata={"example": 512})
    """Positions of the prefix, the same in every sequence.
    Example: 512"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        i, j = queries[..., :, None], keys[..., None, :]
        return (j <= i) | (j < self.length)

    @property
    def bidirectional_prefix(self) -> float:
        return self.length if self.length > 1 else 0

    def check(self, config: ConfigLike) -> str | None:
        return describe_range_error(self.kind, "a length", self.length, 0, "all causal")
