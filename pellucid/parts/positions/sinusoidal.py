"""Sinusoidal positions: channel pair i carries sin and cos of position · base^(−2i/C).

Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
"""

from dataclasses import dataclass

import numpy as np

from pellucid.parts.positions import Positions, Table


@dataclass(frozen=True)
class Sinusoidal(Positions):
    base: float = 10_000.0

    def rows(self, positions: Table, d_model: int) -> Table:
        pair = np.arange(d_model // 2)
        angle = positions[:, None] * self.base ** (-2 * pair / d_model)
        return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(len(positions), d_model)

    def check(self, d_model: int, d_head: int) -> str | None:
        if d_model % 2:
            return (
                f"sinusoidal positions come in pairs of channels, and d_model={d_model} is odd. "
                f"Use d_model={d_model + 1}."
            )
        return None
