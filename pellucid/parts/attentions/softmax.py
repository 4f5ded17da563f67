"""Softmax attention: the values weighted by the softmax of the scaled products of queries and keys."""

import math
from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.attentions import AttentionConfig


@dataclass(frozen=True)
class SoftmaxAttentionConfig(AttentionConfig):
    form: ClassVar[str] = "softmax"
    formula: ClassVar[str] = "P = softmax(Q Kᵀ / √D), Z = P V"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.2"

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        steps = {
            "scores": True,
            "capped": not config.score_cap.is_none,
            "biased": config.positions.has_bias,
            "masked": not config.mask.is_none,
            "pattern": True,
        }
        return tuple(name for name, is_computed in steps.items() if is_computed)

    def operations(self, config: ConfigLike, length: int) -> int:
        """Counts Q Kᵀ and P V over all pairs of query and key, masked or not."""
        return 4 * config.n_head * length**2 * config.d_head

    def count_cached(self, config: ConfigLike, length: int) -> int:
        if config.mask.bidirectional_prefix == math.inf:
            return 0
        visible = config.mask.visible_past
        return 2 * config.n_kv_head * (min(length, sum(visible)) if visible else length) * config.d_head
