"""How the learning rate goes through a run: a factor from 0 to 1 for every step.

Steps count from 0. While warming up, the factor of step t is (t + 1) / warmup, so the first update moves and
the last of the warm-up has the whole rate. Past the end of a run the factor stays where it ended.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

from pellucid.errors import ConfigError
from pellucid.parts import Part


@dataclass(frozen=True)
class ScheduleConfig(Part):
    family: ClassVar[str] = "schedules"

    warmup: int = 0
    """Steps over which the learning rate rises from 0 to its whole value.
    Example: 100"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if said := self.wrong():
            raise ConfigError(f"the schedule {self.kind} {said}")

    def wrong(self) -> str | None:
        """Why these settings make no schedule, and what would; None where they do."""
        if self.warmup < 0:
            return f"cannot warm up for {self.warmup} steps; use 0 for none."
        for name, value in asdict(self).items():
            if isinstance(value, float) and not 0 <= value <= 1:
                return f"takes {name} as a share from 0 to 1, not {value:g}."
        return None

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at this step of a run of so many."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return self.after(step, steps)

    def after(self, step: int, steps: int) -> float:
        """The factor once it is warm."""
        return 1.0

    def progress(self, step: int, steps: int) -> float:
        """How much of the time after the warm-up is over: 0 at its first step, 1 from the end on."""
        return min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
