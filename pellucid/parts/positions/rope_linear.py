"""Position interpolation: every pair rotates `factor` times slower, so that a longer text stays within the
angles of the training."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, describe_shrinking


@dataclass(frozen=True)
class RopeLinear(Rope):
    formula: ClassVar[str] = "θ_{t,i} = t / factor · base^(−2i/D)"
    source: ClassVar[str] = "Chen et al. 2023, arXiv:2306.15595"

    factor: float = 4.0

    def frequencies(self, d_head: int) -> Table:
        return super().frequencies(d_head) / self.factor

    def check(self, config: ConfigLike) -> str | None:
        return describe_shrinking(self.kind, self.factor) or super().check(config)
