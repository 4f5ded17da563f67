"""Presence penalty: subtracted once from the score of each token that the new text has."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps, TextLike, mark_tokens


@dataclass(frozen=True)
class PresencePenalty(Sampler):
    formula: ClassVar[str] = "s_i − α if the new text has i, else s_i"
    source: ClassVar[str] = "OpenAI API reference, presence_penalty"
    order: ClassVar[int] = 20
    is_signed: ClassVar[bool] = True

    presence_penalty: float = field(metadata={"example": 0.5})
    """α; below 0 repetitions gain.
    Example: 0.5"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        seen = mark_tokens(text.new, text.vocab_size).astype(float)
        return {"seen": seen, "alpha": -self.presence_penalty} if text.new else None

    @staticmethod
    def apply(t: Steps, scores: Any, seen: Any, alpha: Any) -> Any:
        return t("scores", "scaled_sum", scores, seen, alpha=alpha)
