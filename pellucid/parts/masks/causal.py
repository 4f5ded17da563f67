"""The causal mask: a query attends to its own position and earlier ones."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.parts.masks import MaskConfig


@dataclass(frozen=True)
class Causal(MaskConfig):
    causal: ClassVar[bool] = True
    formula: ClassVar[str] = "j ≤ i"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3"

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        return keys[..., None, :] <= queries[..., :, None]
