"""The whole learning rate until the last share of the run, and then a straight line down to the floor.

Until the decay begins the run does not know how long it is: it can be prolonged from there.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import ScheduleConfig


@dataclass(frozen=True)
class WarmupStableDecay(ScheduleConfig):
    formula: ClassVar[str] = "1 − (1 − floor) · q, q = (t − start) / (steps − start) in [0, 1]"
    source: ClassVar[str] = "Hu et al. 2024, arXiv:2404.06395; straight: Hägele et al. 2024, arXiv:2405.18392"

    decay: float = 0.2
    """Fraction of the run, at its end, over which the learning rate falls.
    Example: 0.5"""
    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after(self, step: int, steps: int) -> float:
        start = self.start(steps)
        if start >= steps:
            return 1.0
        return 1 - (1 - self.floor) * min(1.0, max(0, step - start) / (steps - start))

    def start(self, steps: int) -> int:
        """The first step of the decay; the warm-up is never cut short by it."""
        return max(self.warmup, steps - round(self.decay * steps))
