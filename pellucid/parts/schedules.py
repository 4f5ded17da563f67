"""Learning-rate schedules: a factor from 0 to 1 for every step.

Steps count from 0. During warm-up the factor of step t is (t + 1) / warmup, so that the first update is not 0
and the last step of the warm-up has the full rate. After the end of a run the factor stays at its last value.
"""

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

from pellucid.base.errors import ConfigError
from pellucid.parts import Part


@dataclass(frozen=True)
class ScheduleConfig(Part):
    family: ClassVar[str] = "schedules"

    warmup: int = 0
    """Steps over which the learning rate rises from 0 to its whole value.
    Example: 100"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if error := self.find_error():
            raise ConfigError(f"the schedule {self.kind} {error}")

    def find_error(self) -> str | None:
        """Returns why these settings are not a schedule, and what would be; None where they are."""
        if self.warmup < 0:
            return f"cannot warm up for {self.warmup} steps; use 0 for none."
        for name, value in asdict(self).items():
            if isinstance(value, float) and not 0 <= value <= 1:
                return f"takes {name} as a fraction from 0 to 1, not {value:g}."
        return None

    def factor(self, step: int, steps: int) -> float:
        """Returns what the learning rate is multiplied with at this step of a run of `steps` steps."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return self.after_warmup(step, steps)

    def after_warmup(self, step: int, steps: int) -> float:
        """Returns the factor at a step after the warm-up."""
        return 1.0

    def progress(self, step: int, steps: int) -> float:
        """Returns the fraction of the steps after the warm-up that are done: 0 at the first, 1 at the end."""
        return min(1.0, (step - self.warmup) / max(1, steps - self.warmup))


@dataclass(frozen=True)
class Constant(ScheduleConfig):
    """The full learning rate at every step after the warm-up."""

    kind: ClassVar[str] = "constant"
    formula: ClassVar[str] = "min(1, (t + 1) / warmup)"


@dataclass(frozen=True)
class Cosine(ScheduleConfig):
    """Cosine decay: half a cosine from the full learning rate down to the floor."""

    kind: ClassVar[str] = "cosine"
    formula: ClassVar[str] = (
        "floor + (1 − floor) · (1 + cos(π p)) / 2, p = (t − warmup) / (steps − warmup) ≤ 1"
    )
    source: ClassVar[str] = "Loshchilov and Hutter 2016, arXiv:1608.03983"

    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after_warmup(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * self.progress(step, steps))) / 2


@dataclass(frozen=True)
class LinearDecay(ScheduleConfig):
    """Linear decay: a straight line from the full learning rate down to the floor."""

    kind: ClassVar[str] = "linear"
    formula: ClassVar[str] = "1 − (1 − floor) · p, p = (t − warmup) / (steps − warmup) ≤ 1"
    source: ClassVar[str] = "Devlin et al. 2018, arXiv:1810.04805"

    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after_warmup(self, step: int, steps: int) -> float:
        return 1 - (1 - self.floor) * self.progress(step, steps)


@dataclass(frozen=True)
class InverseSqrt(ScheduleConfig):
    """Inverse square root decay (the first Transformer): the rate falls with the root of the number of
    updates, whatever the length of the run.

    The paper's rate is d_model^−½ · min(n^−½, n · warmup^−3/2) for update n = t + 1. Its highest value, at
    the end of the warm-up, is 1 here: a learning rate of (d_model · warmup)^−½ makes the two equal.
    """

    kind: ClassVar[str] = "inverse_sqrt"
    formula: ClassVar[str] = "min(n / warmup, √(warmup / n)), n = t + 1"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 5.3"

    warmup: int = 4000

    def after_warmup(self, step: int, steps: int) -> float:
        return math.sqrt(max(1, self.warmup) / (step + 1))


@dataclass(frozen=True)
class WarmupStableDecay(ScheduleConfig):
    """Warm-up, stable, decay (WSD): the full learning rate until the last fraction of the run, then a
    straight line down to the floor.

    Until the decay begins, the factors do not depend on the length of the run: it can be prolonged from
    there.
    """

    kind: ClassVar[str] = "warmup_stable_decay"
    formula: ClassVar[str] = "1 − (1 − floor) · q, q = (t − start) / (steps − start) in [0, 1]"
    source: ClassVar[str] = "Hu et al. 2024, arXiv:2404.06395; straight: Hägele et al. 2024, arXiv:2405.18392"

    decay: float = 0.2
    """Fraction of the run, at its end, over which the learning rate falls.
    Example: 0.5"""
    floor: float = 0.0
    """Fraction of the learning rate with which the run ends.
    Example: 0.1"""

    def after_warmup(self, step: int, steps: int) -> float:
        start = self.decay_start(steps)
        if start >= steps:
            return 1.0
        return 1 - (1 - self.floor) * min(1.0, max(0, step - start) / (steps - start))

    def decay_start(self, steps: int) -> int:
        """Returns the first step of the decay, which is never before the end of the warm-up."""
        return max(self.warmup, steps - round(self.decay * steps))
