"""Temperature: scores are divided by T; below 1 the probable tokens gain, above 1 the improbable ones."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps


@dataclass(frozen=True)
class Temperature(Sampler):
    formula: ClassVar[str] = "(s − max s) / T"
    source: ClassVar[str] = "Ackley, Hinton and Sejnowski 1985, Cognitive Science 9, 147-169"
    order: ClassVar[int] = 90

    temperature: float = field(metadata={"example": 0.8})
    """T, above 0; greedy decoding (T = 0) has no temperature, and draws nothing.
    Example: 0.8"""

    def find_error(self) -> str | None:
        return (
            None if self.temperature > 0 else "divides by a temperature above 0; omit it for greedy decoding."
        )

    @staticmethod
    def apply(t: Steps, scores: Any, temperature: Any) -> Any:
        return t("scores", "temper", scores, temperature=temperature)
