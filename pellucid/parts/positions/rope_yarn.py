"""YaRN: pairs that turn often within the original context stay, the others are slowed, and scores grow.

A pair that turns more than `beta_fast` times within `original_context` positions keeps its frequency; one
that turns less than `beta_slow` times is slowed by `factor`; between the two, a ramp. The ramp is linear in
the number of the pair and starts and ends at whole pairs, as in the authors' code.

Longer texts flatten the pattern, which the scores make up for: the paper's 1/t, here `attention_scale`, is
attention_factor². Others multiply the cosines and sines of q and of k by attention_factor; a score, being a
product of one q and one k, then grows by the same square.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope, never_seen, shrunk


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
        """How much each pair [D/2] is slowed: 0 for not at all, 1 for by `factor`."""
        first = math.floor(self.pair_that_turns(self.beta_fast, d_head))
        last = math.ceil(self.pair_that_turns(self.beta_slow, d_head))
        first, last = max(first, 0), min(last, d_head - 1)
        return np.clip((np.arange(d_head // 2) - first) / max(last - first, 1), 0, 1)

    def pair_that_turns(self, times: float, d_head: int) -> float:
        """Which pair turns so many times within the original context: i with L base^(−2i/D) = 2π times."""
        log_base_power = math.log(self.original_context) - math.log(2 * math.pi) - math.log(times)
        return d_head * log_base_power / (2 * math.log(self.base))

    @property
    def attention_scale(self) -> float:
        factor = self.attention_factor or 0.1 * math.log(self.factor) + 1
        return factor * factor

    def check(self, config: ConfigLike) -> str | None:
        if why := shrunk(self.kind, self.factor) or never_seen(self.kind, self.original_context):
            return why
        if not 0 < self.beta_slow < self.beta_fast:
            return (
                f"{self.kind} slows pairs that turn less than beta_slow times and keeps those that turn more "
                f"than beta_fast times; beta_slow={self.beta_slow:g} must be above 0 and below "
                f"beta_fast={self.beta_fast:g}. The paper has 1 and 32."
            )
        if self.base <= 1:
            return (
                f"{self.kind} needs pairs that turn ever slower, and base={self.base:g} has none. "
                f"Use a base above 1, such as 10000."
            )
        if self.pair_that_turns(self.beta_slow, config.d_head) < 0:
            return (
                f"within original_context={self.original_context} not even the fastest pair turns "
                f"beta_slow={self.beta_slow:g} times, so that {self.kind} would slow all alike. "
                f'Use a longer original_context, a smaller beta_slow, or positions = "rope_linear".'
            )
        if self.pair_that_turns(self.beta_fast, config.d_head) >= config.d_head:
            return (
                f"within original_context={self.original_context} every pair turns more than "
                f"beta_fast={self.beta_fast:g} times, so that {self.kind} has none to slow. "
                f"Use a shorter original_context, or a larger base."
            )
        if not 1e-6 <= self.attention_scale <= 1e6:
            return (
                f"{self.kind} multiplies the scores by attention_factor² = {self.attention_scale:g}, which "
                f"leaves nothing of them. Use attention_factor=0 for the paper's, or one near 1."
            )
        return super().check(config)
