"""Rotary positions: channel pair i of q and k turns by position · base^(−2i/D).

Su et al. 2021, arXiv:2104.09864. Turning both turns their dot product back, so a score depends on
the distance between two positions only.
"""

from dataclasses import dataclass

import numpy as np

from pellucid.parts.positions import Positions, Table, Turn


@dataclass(frozen=True)
class Rope(Positions):
    base: float = 10_000.0
    layout: str = "halves"

    def turn(self, positions: Table, d_head: int) -> Turn:
        pair = np.arange(d_head // 2)
        return Turn(positions[:, None] * self.base ** (-2 * pair / d_head), self.layout)

    def check(self, d_model: int, d_head: int) -> str | None:
        if d_head % 2:
            return (
                f"rope turns pairs of channels, and d_head={d_head} is odd. "
                f"Use d_head={d_head + 1}, or change d_model or n_head so that it is even."
            )
        if self.layout not in ("halves", "pairs"):
            return f"rope has the layouts halves and pairs, not {self.layout!r}."
        return None
