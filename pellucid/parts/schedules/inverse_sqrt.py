"""The first Transformer's schedule: falling with the root of the number of updates, however long the run.

The paper's rate is d_model^−½ · min(n^−½, n · warmup^−3/2) for update n = t + 1. Its highest value, at the
end of the warm-up, is 1 here: a learning rate of (d_model · warmup)^−½ makes the two the same.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import ScheduleConfig


@dataclass(frozen=True)
class InverseSqrt(ScheduleConfig):
    formula: ClassVar[str] = "min(n / warmup, √(warmup / n)), n = t + 1"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 5.3"

    warmup: int = 4000

    def after(self, step: int, steps: int) -> float:
        return math.sqrt(max(1, self.warmup) / (step + 1))
