"""Minimum of new tokens: stop tokens are removed until the new text has as many tokens."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps, TextLike, mark_tokens


@dataclass(frozen=True)
class MinNewTokens(Sampler):
    formula: ClassVar[str] = "−∞ if i is a stop token and the new text has fewer than n tokens, else s_i"
    source: ClassVar[str] = "transformers, MinNewTokensLengthLogitsProcessor"
    order: ClassVar[int] = 60

    min_new_tokens: int = field(metadata={"example": 5})
    """n.
    Example: 5"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        stops = [id for id in text.stop_ids if id < text.vocab_size]
        if len(text.new) >= self.min_new_tokens or not stops:
            return None
        return {"allowed": ~mark_tokens(stops, text.vocab_size)}

    @staticmethod
    def apply(t: Steps, scores: Any, allowed: Any) -> Any:
        return t("scores", "mask", scores, allowed)
