"""Half a cosine from the whole learning rate down to the floor: slow at first, fast in the middle, slow at
the end."""

import math
from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import ScheduleConfig


@dataclass(frozen=True)
class Cosine(ScheduleConfig):
    formula: ClassVar[str] = (
        "floor + (1 − floor) · (1 + cos(π p)) / 2, p = (t − warmup) / (steps − warmup) ≤ 1"
    )
    source: ClassVar[str] = "Loshchilov and Hutter 2016, arXiv:1608.03983"

    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * self.progress(step, steps))) / 2
