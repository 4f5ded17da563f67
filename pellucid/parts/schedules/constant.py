"""The whole learning rate at every step after the warm-up."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.schedules import Schedule


@dataclass(frozen=True)
class Constant(Schedule):
    formula: ClassVar[str] = "min(1, (t + 1) / warmup)"
