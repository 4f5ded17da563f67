"""Softmax attention: each position takes from the others as much as its query finds in their keys."""

import math
from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Model
from pellucid.parts.attentions import Attention


@dataclass(frozen=True)
class SoftmaxAttention(Attention):
    form: ClassVar[str] = "softmax"
    formula: ClassVar[str] = "P = softmax(Q Kᵀ / √D), Z = P V"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.2"

    def values(self, model: Model) -> tuple[str, ...]:
        steps = {
            "scores": True,
            "capped": model.score_cap.kind != "none",
            "biased": model.positions.biased(),
            "masked": model.mask.kind != "none",
            "pattern": True,
        }
        return tuple(name for name, there in steps.items() if there)

    def operations(self, model: Model, length: int) -> int:
        """Scores and mixture: every query with every key, as computed before the mask."""
        return 4 * model.n_head * length**2 * model.d_head

    def cached(self, model: Model, length: int) -> int:
        if model.mask.together == math.inf:
            return 0
        kept = model.mask.kept
        return 2 * model.n_kv_head * (min(length, sum(kept)) if kept else length) * model.d_head
