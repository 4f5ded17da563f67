"""Banned tokens: some tokens are always removed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps, TextLike, TokenId, mark_tokens


@dataclass(frozen=True)
class BannedTokens(Sampler):
    formula: ClassVar[str] = "−∞ if i is banned, else s_i"
    source: ClassVar[str] = "transformers, NoBadWordsLogitsProcessor"
    order: ClassVar[int] = 50

    banned_tokens: tuple[TokenId, ...] = field(metadata={"example": (0, 1)})
    """Token ids.
    Example: [0, 1]"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        return {"allowed": ~mark_tokens(self.banned_tokens, text.vocab_size)} if self.banned_tokens else None

    @staticmethod
    def apply(t: Steps, scores: Any, allowed: Any) -> Any:
        return t("scores", "mask", scores, allowed)

    @property
    def token_ids(self) -> Iterable[int]:
        return self.banned_tokens
