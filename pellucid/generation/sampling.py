"""How a text is chosen from a model's logits: one frozen record for every caller.

The fields that carry the name of a file in `parts/samplers/` are the settings of that sampler; a sampler
without a field of its own is given in `samplers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CONTEXT_RULES = ("refuse", "crop", "roll")
"""What happens where the context is full: the request is refused before it begins; the last half of the
context is read again from position 0; or the first `keep` tokens and the last half of the others are."""


@dataclass(frozen=True)
class Sampling:
    """The settings of one request. The defaults are greedy decoding."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned_tokens: tuple[int, ...] = ()
    forced_tokens: tuple[int, ...] = ()
    """The first new tokens."""
    regex: str | None = None
    json_schema: str | None = None
    grammar: str | None = None
    samplers: tuple[Any, ...] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = None
    """None: as many as the context holds, at most `DEFAULT_NEW_TOKENS`."""
    stop: tuple[str, ...] = ()
    """Texts that end the output, which does not contain them."""
    stop_ids: tuple[int, ...] | None = None
    """Tokens that end the output; None: the model's own."""
    seed: int | None = None
    n: int = 1
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    context: str = "refuse"
    keep: int = 0


DEFAULT_NEW_TOKENS = 128
"""New tokens where a request does not say how many."""
