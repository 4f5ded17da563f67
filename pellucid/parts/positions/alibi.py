"""ALiBi: a score falls linearly with the distance between query and key, by a factor m_h for each head.

The factors are a geometric series: 2^(−8/H), its square, … down to 2^(−8). If the number of heads is not a
power of two, they are the series of the power below it, followed by every other factor of the power above.
The paper looks back only; where a query attends to later keys, distance counts the same in both directions.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts.positions import PositionsConfig, Table


@dataclass(frozen=True)
class Alibi(PositionsConfig):
    formula: ClassVar[str] = "B_{h,i,j} = −m_h |i − j|, m_h = 2^(−8(h+1)/H) where H is a power of two"
    source: ClassVar[str] = "Press et al. 2021, arXiv:2108.12409"

    def bias_factors(self, n_head: int) -> Table:
        """Returns how much a score falls per position of distance, for each head [H].

        >>> Alibi().bias_factors(3)
        array([0.0625    , 0.00390625, 0.25      ])
        """
        below = 1 << (n_head.bit_length() - 1)
        series = np.arange(1, below + 1) / below
        between = np.arange(1, 2 * (n_head - below), 2) / (2 * below)
        return 2.0 ** (-8 * np.concatenate([series, between]))
