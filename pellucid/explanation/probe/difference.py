"""A mean difference of −ln p per token between two readings, and whether it decides.

Neighboring tokens are not independent, so its standard error is that of the means of blocks of tokens.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

BLOCK = 50
"""Tokens of a block."""
ERRORS = 4.0
"""Standard errors by which a difference decides."""
LEAST_BLOCKS = 5


@dataclass(frozen=True)
class MeanDifference:
    """A mean difference of −ln p per token, in nats, and its standard error over blocks of tokens."""

    mean: float
    error: float
    blocks: int
    tokens: int

    @property
    def decides(self) -> int:
        """1 where the mean is above 0 by more than 4 standard errors, −1 where it is below by as many, or by
        more of few blocks, because that is an alarm; else 0."""
        if self.blocks < LEAST_BLOCKS or math.isnan(self.mean):
            return 0
        if self.mean > ERRORS * self.error:
            return 1
        return -1 if -self.mean > count_errors(self.blocks) * self.error else 0

    @property
    def limit(self) -> float:
        """The smallest mean that would decide here."""
        return ERRORS * self.error if self.blocks > 1 else math.inf

    @property
    def needed(self) -> float:
        """The number of tokens that would decide, were the mean the same."""
        return self.tokens * (ERRORS * self.error / abs(self.mean)) ** 2 if self.mean else math.inf


def count_errors(blocks: int) -> float:
    """Returns how many standard errors decide: 4, and of few blocks the quantile of Student's t that is as
    rare as 4 of a normal distribution (the expansion of Cornish and Fisher).

    >>> round(count_errors(40), 1), round(count_errors(10), 1), round(count_errors(5), 1)
    (4.0, 6.9, 15.1)
    """
    if blocks >= 20:
        return ERRORS
    degrees, z = max(blocks - 1, 1), ERRORS
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def measure_difference(differences: Floats, block: int = BLOCK) -> MeanDifference:
    """Returns the mean of differences [n] with the standard error of the means of their blocks; what is left
    after the last whole block counts in the mean alone."""
    blocks = len(differences) // block
    if not len(differences):
        return MeanDifference(math.nan, math.nan, 0, 0)
    with np.errstate(all="ignore"):
        means = differences[: blocks * block].reshape(blocks, block).mean(-1)
        error = float(means.std(ddof=1) / blocks**0.5) if blocks > 1 else math.nan
        return MeanDifference(float(differences.mean()), error, blocks, len(differences))
