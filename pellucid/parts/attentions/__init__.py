"""How queries and keys decide what each position takes from the others' values.

`form` is the engines' file: it makes z [B H T D] of q, k and v. The rest of attention (projections, QK-norm,
turning, the cache of a past, the output) is the same for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.names import describe
from pellucid.parts import ConfigLike, Part

Axes = Mapping[str, int]
Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class AttentionConfig(Part):
    family: ClassVar[str] = "attentions"
    form: ClassVar[str]

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        """The named values of one layer between q, k, v and z, in order."""
        return ()

    def feature_count(self, config: ConfigLike) -> int:
        """How many features stand for a query or a key, where features do."""
        return 0

    def numbers(self, config: ConfigLike, axes: Axes) -> int:
        """How many numbers those values are, for axes of these sizes."""
        rows = (describe(f"blocks.0.attn.{name}") for name in self.values(config))
        return sum(math.prod(axes[axis] for axis in row.axes) for row in rows if row)

    def operations(self, config: ConfigLike, length: int) -> int:
        """Additions and multiplications of one layer for one sequence, as the fast engine does them."""
        raise NotImplementedError

    def cached(self, config: ConfigLike, length: int) -> int:
        """Numbers that one layer keeps of a sequence of that length."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearAttentionConfig(AttentionConfig):
    """Attention by features: what a query finds in a key is φ(q)·φ(k), and a row of that is divided by its
    sum. A sum over keys can then be taken once for all queries, so the time grows with T and not with T²,
    and the past is a sum of fixed size:

        z_t = φ(q_t) S_t / (φ(q_t) · n_t),   S_t = Σ_{s ≤ t} φ(k_s)ᵀ v_s,   n_t = Σ_{s ≤ t} φ(k_s)

    `feature` is φ: an operation of the specification, and a file of the fast engine's `features/`. No feature
    is below 0; a row whose sum is 0 takes nothing, z = 0.
    """

    form: ClassVar[str] = "linear"
    feature: ClassVar[str]
    looks: ClassVar[bool] = False
    """Whether the features look along fixed directions."""
    chunk: ClassVar[int] = 64
    """So many positions the fast engine compares pair by pair; what is further back it reads from the sum."""

    def directions(self, d_head: int) -> Table | None:
        """The fixed directions [R D] that the features look along, where they do."""
        return None

    def feature_count(self, config: ConfigLike) -> int:
        return config.d_head

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        return ("q_feat", "k_feat", "kernel", "pattern")

    def operations(self, config: ConfigLike, length: int) -> int:
        """The keys' sum and what each query reads of it; under a mask, also the pairs within a chunk."""
        r, wide = self.feature_count(config), config.d_head + 1
        near = 0 if config.mask.is_none else config.n_head * min(length, self.chunk) * (r + wide)
        looked = (config.n_head + config.n_kv_head) * r * config.d_head if self.looks else 0
        return 2 * length * ((config.n_head + config.n_kv_head) * r * wide + near + looked)

    def cached(self, config: ConfigLike, length: int) -> int:
        return config.n_kv_head * self.feature_count(config) * (config.d_head + 1)

    def check(self, config: ConfigLike) -> str | None:
        whole = "the scores of linear attention are never there to be changed"
        if config.positions.has_bias:
            return (
                f"positions {config.positions.kind!r} add a bias to the scores, and {whole}. Use positions "
                f'that rotate or add rows, "rope" or "learned", or attention "softmax".'
            )
        if config.positions.attention_scale != 1:
            return (
                f"positions {config.positions.kind!r} multiply the scores, and {whole}. Use "
                f'positions "rope", or attention "softmax".'
            )
        if not config.score_cap.is_none:
            return (
                f'score_cap {config.score_cap.kind!r} caps the scores, and {whole}. Use score_cap "none", '
                f'or attention "softmax".'
            )
        if config.mask.kind not in ("causal", "none"):
            return (
                f"linear attention keeps sums over all that came before, or over all there is, and mask "
                f'{config.mask.kind!r} is neither. Use mask "causal" or "none", or attention "softmax".'
            )
        if "pattern" in config.dropout.rates:
            return (
                "dropout of the pattern needs a pattern, and linear attention makes z without one. Use "
                'dropout with pattern=0, or attention "softmax".'
            )
        return None
