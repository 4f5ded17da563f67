"""YaRN: high frequencies are kept, low frequencies are divided by `factor`, and the scores are scaled up.

A pair with more than `beta_fast` rotations within `original_context` positions keeps its frequency; one with
fewer than `beta_slow` is slowed by `factor`; between the two, a ramp. The ramp is linear in the index of the
pair and starts and ends at whole pairs, as in the authors' code.

Longer texts flatten the attention pattern, for which the scale of the scores compensates: the paper's 1/t,
here `attention_scale`, is attention_factor². Other implementations multiply the cosines and sines of q and k
by attention_factor, which scales a score by the same square.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, describe_shrinking, describe_wrong_context


@dataclass(frozen=True)
class RopeYarn(Rope):
    """An `attention_factor` of 0 means: 0.1 ln(factor) + 1, the paper's."""

    formula: ClassVar[str] = "θ_{t,i} = t · base^(−2i/D) · (1 − r_i + r_i / factor), r_i from 0 up to 1"
    source: ClassVar[str] = "Peng et al. 2023, arXiv:2309.00071"

    factor: float = 16.0
    original_context: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 0.0

    def frequencies(self, d_head: int) -> Table:
        full, ramp = super().frequencies(d_head), self.ramp(d_head)
        scaled: Table = full / self.factor * ramp + full * (1 - ramp)
        return scaled

    def ramp(self, d_head: int) -> Table:
        """Returns how much each pair [D/2] is slowed, from 0 for not at all to 1 for `factor`."""
        first = math.floor(self.find_pair(self.beta_fast, d_head))
        last = math.ceil(self.find_pair(self.beta_slow, d_head))
        first, last = max(first, 0), min(last, d_head - 1)
        return np.clip((np.arange(d_head // 2) - first) / max(last - first, 1), 0, 1)

    def find_pair(self, rotations: float, d_head: int) -> float:
        """Returns the index i of the pair with this number of rotations: L base^(−2i/D) = 2π rotations."""
        log_base_power = math.log(self.original_context) - math.log(2 * math.pi) - math.log(rotations)
        return d_head * log_base_power / (2 * math.log(self.base))

    @property
    def attention_scale(self) -> float:
        factor = self.attention_factor or 0.1 * math.log(self.factor) + 1
        return factor * factor

    def check(self, config: ConfigLike) -> str | None:
        if why := describe_shrinking(self.kind, self.factor) or describe_wrong_context(
            self.kind, self.original_context
        ):
            return why
        if not 0 < self.beta_slow < self.beta_fast:
            return (
                f"{self.kind} slows pairs with fewer than beta_slow rotations and keeps those with more than "
                f"beta_fast; beta_slow={self.beta_slow:g} must be above 0 and below "
                f"beta_fast={self.beta_fast:g}. The paper has 1 and 32."
            )
        if self.base <= 1:
            return (
                f"{self.kind} needs pairs of different frequencies, and base={self.base:g} gives one. "
                f"Use a base above 1, such as 10000."
            )
        if self.find_pair(self.beta_slow, config.d_head) < 0:
            return (
                f"within original_context={self.original_context} even the fastest pair has fewer than "
                f"beta_slow={self.beta_slow:g} rotations, so that {self.kind} would slow all pairs equally. "
                f'Use a longer original_context, a smaller beta_slow, or positions = "rope_linear".'
            )
        if self.find_pair(self.beta_fast, config.d_head) >= config.d_head:
            return (
                f"within original_context={self.original_context} every pair has more than "
                f"beta_fast={self.beta_fast:g} rotations, so that {self.kind} would slow none. "
                f"Use a shorter original_context, or a larger base."
            )
        if not 1e-6 <= self.attention_scale <= 1e6:
            return (
                f"{self.kind} multiplies the scores by attention_factor² = {self.attention_scale:g}, which "
                f"is outside 1e-6 to 1e6. Use attention_factor=0 for the paper's, or one near 1."
            )
        return super().check(config)
