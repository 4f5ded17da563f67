"""Forced tokens: the new text begins with given tokens; at each of them all others are removed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps, TextLike, TokenId, mark_tokens


@dataclass(frozen=True)
class ForcedTokens(Sampler):
    formula: ClassVar[str] = "s_i if i is the forced token of this step, else −∞"
    source: ClassVar[str] = "transformers, ForcedBOSTokenLogitsProcessor"
    order: ClassVar[int] = 70

    forced_tokens: tuple[TokenId, ...] = field(metadata={"example": (5, 2)})
    """Token ids, in order.
    Example: [5, 2]"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        forced = self.forced_tokens[len(text.new) :][:1]
        return {"allowed": mark_tokens(forced, text.vocab_size)} if forced else None

    @staticmethod
    def apply(t: Steps, scores: Any, allowed: Any) -> Any:
        return t("scores", "mask", scores, allowed)

    @property
    def token_ids(self) -> Iterable[int]:
        return self.forced_tokens
