"""NTK-aware rotary positions: a larger base, chosen so that the slowest pair turns `factor` times slower
and the fastest as before.

base' = base · factor^(D/(D−2)) makes pair i slower by factor^(2i/(D−2)): 1 for the first pair, `factor` for
the last. It is that quotient which is computed, because base' itself can be too large for a number.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, shrunk


@dataclass(frozen=True)
class RopeNtk(Rope):
    formula: ClassVar[str] = "θ_{t,i} = t · (base · factor^(D/(D−2)))^(−2i/D)"
    source: ClassVar[str] = "bloc97 2023, as told by Peng et al. 2023, arXiv:2309.00071"

    factor: float = 4.0

    def frequencies(self, d_head: int) -> Table:
        slower = self.factor ** (2 * np.arange(d_head // 2) / (d_head - 2))
        return super().frequencies(d_head) / slower

    def check(self, config: ConfigLike) -> str | None:
        if why := shrunk(self.kind, self.factor):
            return why
        if config.d_head == 2:
            return (
                f"{self.kind} slows the last pair of channels and keeps the first, and d_head=2 has one. "
                f'Use d_head=4 or more, or positions = "rope_linear".'
            )
        return super().check(config)
