"""Repetition penalty: tokens of the prompt and of the new text lose score, however often they occurred."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pellucid.parts.samplers import Sampler, Steps, TextLike, mark_tokens


@dataclass(frozen=True)
class RepetitionPenalty(Sampler):
    formula: ClassVar[str] = "s / θ where s > 0, else s · θ, of the tokens so far"
    source: ClassVar[str] = "Keskar et al. 2019, arXiv:1909.05858"
    order: ClassVar[int] = 10

    repetition_penalty: float = field(metadata={"example": 1.1})
    """θ, above 0; below 1 repetitions gain.
    Example: 1.1"""

    def find_error(self) -> str | None:
        return None if self.repetition_penalty > 0 else "divides by a penalty above 0; omit it for none."

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        tokens = np.concatenate((text.prompt, np.asarray(text.new, int)))
        return {"seen": mark_tokens(tokens, text.vocab_size), "penalty": self.repetition_penalty}

    @staticmethod
    def apply(t: Steps, scores: Any, seen: Any, penalty: Any) -> Any:
        return t("scores", "penalize", scores, seen, penalty=penalty)
