"""Linear attention with positive random features: on average over the directions, φ(q)·φ(k) = e^(q·k / √D).

So the pattern nears that of softmax attention as the features become many; it is the exponential that is
approximated, and the division by the row's sum that makes it a pattern.

For a direction ω, φ is at most e^(|ω|²/2) / √R, at x' = ω, and |ω|² is near D: large queries and keys cannot
overflow. They vanish: in float32, every feature of an x with |x|² far beyond 200 √D is 0, and a row of zeros
takes nothing. QK-norm keeps them small.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.attentions import LinearAttentionConfig, Table

MOST = 2**16


@dataclass(frozen=True)
class LinearRandom(LinearAttentionConfig):
    """`seed` draws the directions, which stay as they are; Performer may draw anew while training."""

    feature: ClassVar[str] = "random_features"
    looks: ClassVar[bool] = True
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
        if not 1 <= self.features <= MOST:
            return f"{self.kind} needs from 1 to {MOST:,} features, not {self.features}."
        if not 0 <= self.seed < 2**32:
            return f"{self.kind} needs a seed from 0 to {2**32 - 1:,}, not {self.seed}."
        return super().check(config)


@functools.lru_cache(maxsize=8)
def _directions(features: int, seed: int, d_head: int) -> Table:
    """[R D]: each as long as a normal draw of D numbers, at right angles to the others of its block of D."""
    draw = np.random.RandomState(seed)  # whose stream no later NumPy may change
    blocks = []
    for _ in range(-(-features // d_head)):
        turned, upper = np.linalg.qr(draw.standard_normal((d_head, d_head)))
        turned = turned * np.sign(np.diag(upper))  # one answer, and no direction is preferred
        lengths = np.linalg.norm(draw.standard_normal((d_head, d_head)), axis=1)
        blocks.append(turned.T * lengths[:, None])
    table = np.concatenate(blocks)[:features]
    table.flags.writeable = False
    return table
