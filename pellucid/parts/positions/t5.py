"""T5's relative position bias: each head learns one bias for each bucket of distances to earlier keys.

Half of the buckets hold one distance each, 0, 1, 2, …; the widths of the others grow logarithmically up to
`max_distance`, and the last holds all larger distances. Later keys are in bucket 0. All layers share the
table. (T5 itself omits the factor 1/√D of the scores; here it is kept, and W_Q can undo it.)
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike, Shapes
from pellucid.parts.positions import PositionsConfig, Table


@dataclass(frozen=True)
class T5(PositionsConfig):
    formula: ClassVar[str] = (
        "B_{h,i,j} = W_bias[b(i − j), h], b(n) = n below e = buckets / 2, "
        "then e + ⌊(buckets − e) ln(n/e) / ln(max_distance/e)⌋"
    )
    source: ClassVar[str] = "Raffel et al. 2019, arXiv:1910.10683, section 2.1"

    buckets: int = 32
    max_distance: int = 128

    def parameters(self, config: ConfigLike) -> Shapes:
        return {"position_bias.weight": (self.buckets, config.n_head)}

    def bias_ids(self, distances: Table) -> Table:
        return find_buckets(np.maximum(distances, 0), self.buckets, self.max_distance)

    def check(self, config: ConfigLike) -> str | None:
        if not 2 <= self.buckets <= 1024:
            return (
                f"{self.kind} needs a bucket for distance 0 and one for the rest, and at most 1024; "
                f"buckets={self.buckets} is outside. T5 has 32."
            )
        return describe_short_range(self.kind, self.max_distance, self.buckets // 2)


def find_buckets(distances: Table, buckets: int, max_distance: int) -> Table:
    """Returns the bucket of each distance ≥ 0.

    >>> find_buckets(np.array([0, 3, 4, 6, 7, 99]), 8, 16)
    array([0, 3, 4, 5, 5, 7])
    """
    return np.searchsorted(bucket_starts(buckets, max_distance), distances, side="right")


@lru_cache
def bucket_starts(buckets: int, max_distance: int) -> Table:
    """Returns the first distance of each bucket but the first.

    Wide bucket k starts at the first n with (n/e)^w ≥ (max_distance/e)^k, for e single and w wide buckets.
    Integers decide, because a rounded logarithm would start some buckets one distance too early or late.
    """
    single = buckets // 2
    wide = buckets - single
    firsts = list(range(1, single + 1))
    for k in range(1, wide):
        near = round(single * (max_distance / single) ** (k / wide))
        is_reached = near**wide >= max_distance**k * single ** (wide - k)
        firsts.append(near if is_reached else near + 1)
    return np.array(firsts)


def describe_short_range(kind: str, max_distance: int, single: int) -> str | None:
    """Returns why the wide buckets cannot end at `max_distance`; None if they can."""
    if not single < max_distance <= 2**31:
        return (
            f"{kind} has one bucket for each distance below {single}, and the wide ones end at "
            f"max_distance={max_distance}. Use a max_distance from {single + 1} to {2**31}."
        )
    return None
