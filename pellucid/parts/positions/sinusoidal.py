"""Sinusoidal positions: channel pair i is sin and cos of position · base^(−2i/C)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import PositionsConfig, Table


@dataclass(frozen=True)
class Sinusoidal(PositionsConfig):
    formula: ClassVar[str] = "PE_{t,2i} = sin(t · base^(−2i/C)), PE_{t,2i+1} = cos(the same)"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.5"

    base: float = 10_000.0

    def rows(self, positions: Table, d_model: int) -> Table:
        pair = np.arange(d_model // 2)
        angle = positions[..., None] * self.base ** (-2 * pair / d_model)
        return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(*positions.shape, d_model)

    def check(self, config: ConfigLike) -> str | None:
        if self.base < 1:
            return f"sinusoidal positions need a base of 1 or more, such as 10000; got {self.base:g}."
        if config.d_model % 2:
            return (
                f"sinusoidal positions come in pairs of channels, and d_model={config.d_model} is odd. "
                f"Use d_model={config.d_model + 1}."
            )
        return None
