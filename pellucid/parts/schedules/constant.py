"""The whole learning rate at every step after the warm-up."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import ScheduleConfig


@dataclass(frozen=True)
class Constant(ScheduleConfig):
    formula: ClassVar[str] = "min(1, (t + 1) / warmup)"
