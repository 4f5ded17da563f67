"""Frequency penalty: subtracted from a token's score for each time that the new text has it."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pellucid.parts.samplers import Sampler, Steps, TextLike


@dataclass(frozen=True)
class FrequencyPenalty(Sampler):
    formula: ClassVar[str] = "s_i − β · (number of times that the new text has i)"
    source: ClassVar[str] = "OpenAI API reference, frequency_penalty"
    order: ClassVar[int] = 30
    is_signed: ClassVar[bool] = True

    frequency_penalty: float = field(metadata={"example": 0.5})
    """β; below 0 repetitions gain.
    Example: 0.5"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        if not text.new:
            return None
        counts = np.bincount(np.asarray(text.new), minlength=text.vocab_size).astype(float)
        return {"counts": counts, "alpha": -self.frequency_penalty}

    @staticmethod
    def apply(t: Steps, scores: Any, counts: Any, alpha: Any) -> Any:
        return t("scores", "scaled_sum", scores, counts, alpha=alpha)
