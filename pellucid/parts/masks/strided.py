"""The strided mask of the Sparse Transformer: the last few positions, and before them every stride-th.

The paper gives the two parts to different heads or layers or, as here, merges them in every head.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.masks import MaskConfig, describe_range_error


@dataclass(frozen=True)
class Strided(MaskConfig):
    formula: ClassVar[str] = "j ≤ i and (i − j < stride or (i − j) mod stride = 0)"
    source: ClassVar[str] = "Child et al. 2019, arXiv:1904.10509"

    stride: int = field(metadata={"example": 128})
    """Positions of the window, and the distance between the earlier positions that are visible; the paper's
    is near √T. Example: 128"""

    def compute_mask(self, queries: Any, keys: Any) -> Any:
        back = queries[..., :, None] - keys[..., None, :]
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))

    def check(self, config: ConfigLike) -> str | None:
        return describe_range_error(self.kind, "a stride", self.stride, 1, "all of the past")
