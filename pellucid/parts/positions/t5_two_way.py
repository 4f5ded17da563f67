"""T5's relative position bias in both directions: half of the buckets are for later keys."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import Table
from pellucid.parts.positions.t5 import T5, describe_short_range, find_buckets


@dataclass(frozen=True)
class T5TwoWay(T5):
    formula: ClassVar[str] = (
        "B_{h,i,j} = W_bias[b(|i − j|) + (buckets / 2 where j > i), h], b(n) = n below e = buckets / 4, "
        "then e + ⌊(buckets / 2 − e) ln(n/e) / ln(max_distance/e)⌋"
    )

    def bias_ids(self, distances: Table) -> Table:
        half = self.buckets // 2
        earlier = find_buckets(np.abs(distances), half, self.max_distance)
        return np.where(distances < 0, earlier + half, earlier)

    def check(self, config: ConfigLike) -> str | None:
        if self.buckets % 2 or not 4 <= self.buckets <= 1024:
            return (
                f"{self.kind} gives half of the buckets to each direction, and at least two to each; "
                f"buckets={self.buckets} must be even, from 4 to 1024. T5 has 32."
            )
        return describe_short_range(self.kind, self.max_distance, self.buckets // 4)
