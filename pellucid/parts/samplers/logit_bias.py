"""Logit bias: a number added to the scores of some tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pellucid.parts.samplers import Bias, Sampler, Steps, TextLike, TokenId


@dataclass(frozen=True)
class LogitBias(Sampler):
    formula: ClassVar[str] = "s_i + b_i"
    source: ClassVar[str] = "OpenAI API reference, logit_bias"
    order: ClassVar[int] = 40

    logit_bias: Mapping[TokenId, Bias] = field(metadata={"example": {11: -2.5}})
    """b, by token id; the other tokens have 0.
    Example: { 11 = -2.5 }"""

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        bias = np.zeros(text.vocab_size)
        bias[list(self.logit_bias)] = list(self.logit_bias.values())
        return {"bias": bias} if self.logit_bias else None

    @staticmethod
    def apply(t: Steps, scores: Any, bias: Any) -> Any:
        return t("scores", "add", scores, bias)

    @property
    def token_ids(self) -> Iterable[int]:
        return self.logit_bias
