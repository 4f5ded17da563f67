"""A window with global tokens: a window in both directions, and first positions that attend to all and are
visible to all.

It is bidirectional, as in encoders, so it has no cache. BigBird's random blocks are not included.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, describe_range_error


@dataclass(frozen=True)
class WindowGlobal(MaskConfig):
    formula: ClassVar[str] = "|i − j| < size or i < tokens or j < tokens"
    source: ClassVar[str] = "Beltagy et al. 2020, arXiv:2004.05150; Zaheer et al. 2020, arXiv:2007.14062"

    size: int = field(metadata={"example": 257})
    """Positions of one side of the window, the query's own included; Longformer's windows of 512 are 257
    here. Example: 257"""
    tokens: int = field(metadata={"example": 1})
    """First positions that attend to all and are visible to all, the global tokens.
    Example: 1"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        i, j = queries[..., :, None], keys[..., None, :]
        return (i - j < self.size) & (j - i < self.size) | (i < self.tokens) | (j < self.tokens)

    @property
    def bidirectional_prefix(self) -> float:
        return math.inf

    def check(self, config: ConfigLike) -> str | None:
        tokens = describe_range_error(self.kind, "tokens", self.tokens, 0, "none of them global")
        if why := describe_range_error(self.kind, "a size", self.size, 1, "the position alone") or tokens:
            return why
        if self.size == 1 and self.tokens == 0:
            return (
                f"{self.kind} with size=1 and tokens=0 lets each position see itself alone. "
                f'Use a larger size, or tokens ≥ 1, or mask "window" with size=1.'
            )
        return None
