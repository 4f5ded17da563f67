"""Llama 3.1's RoPE: high frequencies are kept, low frequencies are divided by `factor`.

A pair with more than `high_freq_factor` rotations within `original_context` positions keeps its frequency;
one with fewer than `low_freq_factor` is slowed by `factor`; between the two, a ramp that is linear in the
number of rotations.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, describe_shrinking, describe_wrong_context


@dataclass(frozen=True)
class RopeLlama3(Rope):
    formula: ClassVar[str] = "θ_{t,i} = t · base^(−2i/D) · ((1 − s_i) / factor + s_i), s_i from 0 up to 1"
    source: ClassVar[str] = "Meta 2024, the code of Llama 3.1"

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def frequencies(self, d_head: int) -> Table:
        full = super().frequencies(d_head)
        low, high = self.low_freq_factor, self.high_freq_factor
        rotations = self.original_context * full / (2 * math.pi)
        unscaled = (np.clip(rotations, low, high) - low) / (high - low)
        return (1 - unscaled) * full / self.factor + unscaled * full

    def check(self, config: ConfigLike) -> str | None:
        if why := describe_shrinking(self.kind, self.factor) or describe_wrong_context(
            self.kind, self.original_context
        ):
            return why
        if self.low_freq_factor >= self.high_freq_factor:
            return (
                f"{self.kind} slows pairs with fewer than low_freq_factor rotations and keeps those with "
                f"more than high_freq_factor; low_freq_factor={self.low_freq_factor:g} must be "
                f"below high_freq_factor={self.high_freq_factor:g}. Llama 3.1 has 1 and 4."
            )
        return super().check(config)
