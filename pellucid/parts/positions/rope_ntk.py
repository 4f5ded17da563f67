"""NTK-aware RoPE: a larger base, chosen so that the slowest pair rotates `factor` times slower and the
fastest as before.

base' = base · factor^(D/(D−2)) makes pair i slower by factor^(2i/(D−2)): 1 for the first pair, `factor` for
the last. The quotient is computed, because base' itself can overflow.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, describe_shrinking


@dataclass(frozen=True)
class RopeNtk(Rope):
    formula: ClassVar[str] = "θ_{t,i} = t · (base · factor^(D/(D−2)))^(−2i/D)"
    source: ClassVar[str] = "bloc97 2023, as described by Peng et al. 2023, arXiv:2309.00071"

    factor: float = 4.0

    def frequencies(self, d_head: int) -> Table:
        slowdown = self.factor ** (2 * np.arange(d_head // 2) / (d_head - 2))
        return super().frequencies(d_head) / slowdown

    def check(self, config: ConfigLike) -> str | None:
        if why := describe_shrinking(self.kind, self.factor):
            return why
        if config.d_head == 2:
            return (
                f"{self.kind} slows the last pair of channels and keeps the first, and d_head=2 has one. "
                f'Use d_head=4 or more, or positions = "rope_linear".'
            )
        return super().check(config)
