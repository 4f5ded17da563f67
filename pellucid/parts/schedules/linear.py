"""A straight line from the whole learning rate down to the floor."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import ScheduleConfig


@dataclass(frozen=True)
class LinearDecay(ScheduleConfig):
    formula: ClassVar[str] = "1 − (1 − floor) · p, p = (t − warmup) / (steps − warmup) ≤ 1"
    source: ClassVar[str] = "Devlin et al. 2018, arXiv:1810.04805"

    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after(self, step: int, steps: int) -> float:
        return 1 - (1 - self.floor) * self.progress(step, steps)
