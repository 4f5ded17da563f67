"""The score of a text: how likely a model finds it, token by token."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from pellucid.base.errors import TokenError
from pellucid.base.formatting import escape_controls
from pellucid.model import Model, to_model
from pellucid.text.prompts import Prompt, check_length


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


def score(model: "Model | str | os.PathLike[str]", /, prompt: Prompt, parse_special: bool = False) -> Score:
    """Returns the log-probability of every token of a text, given those before it.

    >>> import pellucid
    >>> found = pellucid.score("abcd", "A B C")
    >>> [None if one is None else round(one, 4) for one in found.logprobs]
    [None, -2.0064, -1.1275]
    """
    import torch

    model = to_model(model)
    check_length(prompt, model.config.context_length)
    ids = model.encode(prompt, parse_special)
    logits = model.logits(ids)
    chosen = torch.tensor(ids[1:], device=logits.device)
    found = torch.log_softmax(logits[:-1].double(), -1).gather(-1, chosen[:, None])[:, 0]
    return Score(ids, [model.token(id) for id in ids], [None, *found.tolist()])


def loss(model: "Model | str | os.PathLike[str]", /, prompt: Prompt, parse_special: bool = False) -> float:
    """Returns the mean negative log-likelihood of a text's tokens after the first, in nats per token."""
    found = score(model, prompt, parse_special)
    if len(found) < 2:
        raise TokenError("a loss needs at least two tokens: the first has none before it.")
    return -found.total / (len(found) - 1)
