"""Linear attention with positive random features: on average over the directions, φ(q)·φ(k) = e^(q·k / √D).

So the pattern approaches that of softmax attention as the number of features grows: the features approximate
the exponential, and the division by the row's sum normalizes it.

For a direction ω, φ is at most e^(|ω|²/2) / √R, at x' = ω, and |ω|² is near D: large queries and keys cannot
overflow. They underflow: in float32, every feature of an x with |x|² far beyond 200 √D is 0, and so is z.
QK-norm keeps x small.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.attentions import LinearAttentionConfig, Table

MAX_FEATURES = 2**16


@dataclass(frozen=True)
class LinearRandom(LinearAttentionConfig):
    """`seed` determines the directions, which are constant; Performer may redraw them in training."""

    feature: ClassVar[str] = "random_features"
    has_directions: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "P = φ(Q) φ(K)ᵀ / row sums, φ(x) = e^(Ω x' − |x'|²/2) / √R, x' = x / D^¼, Z = P V"
    )
    source: ClassVar[str] = "Choromanski et al. 2020, arXiv:2009.14794 (FAVOR+)"

    features: int = 16
    seed: int = 0

    def feature_count(self, config: ConfigLike) -> int:
        return self.features

    def directions(self, d_head: int) -> Table:
        return _directions(self.features, self.seed, d_head)

    def check(self, config: ConfigLike) -> str | None:
        if not 1 <= self.features <= MAX_FEATURES:
            return f"{self.kind} needs from 1 to {MAX_FEATURES:,} features, not {self.features}."
        if not 0 <= self.seed < 2**32:
            return f"{self.kind} needs a seed from 0 to {2**32 - 1:,}, not {self.seed}."
        return super().check(config)


@functools.lru_cache(maxsize=8)
def _directions(features: int, seed: int, d_head: int) -> Table:
    """Returns directions [R D], orthogonal within each block of D, with the norms of normal vectors."""
    draw = np.random.RandomState(seed)  # its stream is the same in every version of NumPy
    blocks = []
    for _ in range(-(-features // d_head)):
        orthogonal, upper = np.linalg.qr(draw.standard_normal((d_head, d_head)))
        orthogonal = orthogonal * np.sign(np.diag(upper))  # unique, and uniform over rotations
        lengths = np.linalg.norm(draw.standard_normal((d_head, d_head)), axis=1)
        blocks.append(orthogonal.T * lengths[:, None])
    table = np.concatenate(blocks)[:features]
    table.flags.writeable = False
    return table
