"""Attention: how z [B H T D] is computed from q, k and v.

`form` names the implementation, which each engine has once. Projections, QK-norm, RoPE, cache and output are
the same for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.base.names import describe
from pellucid.parts import ConfigLike, Part

Axes = Mapping[str, int]
Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class AttentionConfig(Part):
    family: ClassVar[str] = "attentions"
    form: ClassVar[str]

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        """Returns the named values of one layer between q, k, v and z, in order."""
        return ()

    def feature_count(self, config: ConfigLike) -> int:
        """Returns the number of features R of a query or key, 0 without a feature map."""
        return 0

    def numbers(self, config: ConfigLike, axes: Axes) -> int:
        """Returns how many numbers those values are, for axes of these sizes."""
        rows = (describe(f"blocks.0.attn.{name}") for name in self.values(config))
        return sum(math.prod(axes[axis] for axis in row.axes) for row in rows if row)

    def operations(self, config: ConfigLike, length: int) -> int:
        """Returns the additions and multiplications of one layer of the fast engine for one sequence."""
        raise NotImplementedError

    def count_cached(self, config: ConfigLike, length: int) -> int:
        """Returns how many numbers one layer caches for a sequence of that length."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearAttentionConfig(AttentionConfig):
    """Linear attention: the weight of a key for a query is φ(q)·φ(k), divided by the sum over keys. The sum
    over keys is computed once for all queries, so time is linear in T, and the cache is a sum of fixed size:

        z_t = φ(q_t) S_t / (φ(q_t) · n_t),   S_t = Σ_{s ≤ t} φ(k_s)ᵀ v_s,   n_t = Σ_{s ≤ t} φ(k_s)

    `feature` is φ: an operation of the specification, and a class of `engine/features.py`. Features are 0 or
    more; if all weights of a query are 0, so is z.
    """

    form: ClassVar[str] = "linear"
    feature: ClassVar[str]
    has_directions: ClassVar[bool] = False
    """Whether the features are projections on fixed directions."""
    chunk: ClassVar[int] = 64
    """Positions that the fast engine compares pair by pair; earlier ones enter through the running sum."""

    def directions(self, d_head: int) -> Table | None:
        """Returns the fixed directions [R D] of the features, None without directions."""
        return None

    def feature_count(self, config: ConfigLike) -> int:
        return config.d_head

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        return ("q_feat", "k_feat", "kernel", "pattern")

    def operations(self, config: ConfigLike, length: int) -> int:
        """Counts the sum over keys and its product with each query; under a mask, also the pairs of a
        chunk."""
        r, wide = self.feature_count(config), config.d_head + 1
        in_chunk = 0 if config.mask.is_none else config.n_head * min(length, self.chunk) * (r + wide)
        projected = (config.n_head + config.n_kv_head) * r * config.d_head if self.has_directions else 0
        return 2 * length * ((config.n_head + config.n_kv_head) * r * wide + in_chunk + projected)

    def count_cached(self, config: ConfigLike, length: int) -> int:
        return config.n_kv_head * self.feature_count(config) * (config.d_head + 1)

    def check(self, config: ConfigLike) -> str | None:
        reason = "linear attention has no scores"
        if config.positions.has_bias:
            return (
                f"positions {config.positions.kind!r} add a bias to the scores, and {reason}. Use positions "
                f'that rotate or add rows, "rope" or "learned", or attention "softmax".'
            )
        if config.positions.attention_scale != 1:
            return (
                f"positions {config.positions.kind!r} multiply the scores, and {reason}. Use "
                f'positions "rope", or attention "softmax".'
            )
        if not config.score_cap.is_none:
            return (
                f'score_cap {config.score_cap.kind!r} caps the scores, and {reason}. Use score_cap "none", '
                f'or attention "softmax".'
            )
        if config.mask.kind not in ("causal", "none"):
            return (
                f"linear attention sums over all earlier keys, or over all keys, and mask "
                f'{config.mask.kind!r} does neither. Use mask "causal" or "none", or attention "softmax".'
            )
        if "pattern" in config.dropout.rates:
            return (
                "dropout of the pattern needs a pattern, and linear attention has none. Use "
                'dropout with pattern=0, or attention "softmax".'
            )
        return None
