"""How likely a model finds a text, token by token."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pellucid.base.formatting import escape_controls


@dataclass(frozen=True)
class Score:
    """`logprobs[i]` is ln p(token i | those before it); None for the first, which has none before it."""

    ids: list[int]
    tokens: list[str]
    logprobs: list[float | None]

    def __iter__(self) -> Iterator[tuple[str, float | None]]:
        return iter(zip(self.tokens, self.logprobs, strict=True))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def total(self) -> float:
        """ln p(text | its first token)."""
        return sum(found for found in self.logprobs if found is not None)

    @property
    def perplexity(self) -> float:
        """e to the mean negative log-likelihood of the tokens that were scored."""
        scored = len(self) - 1
        return math.exp(-self.total / scored) if scored else math.nan

    def __repr__(self) -> str:
        return f"<Score of {len(self)} tokens: {self.total:.4f}, perplexity {self.perplexity:.4g}>"

    def __str__(self) -> str:
        lines = (f"{token!r:<20}{'' if known is None else f'{known:9.4f}'}".rstrip() for token, known in self)
        return escape_controls("\n".join(lines))
