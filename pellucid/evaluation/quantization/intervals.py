"""Means over targets with intervals by bootstrap over spans of them, all figures on the same samples."""

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.bootstrap import Floats, sample_ratios, with_interval
from pellucid.evaluation.result import Estimate

FEWEST_UNITS = 8
"""Spans that an interval needs: a bootstrap over fewer is too narrow."""


def draw_means(
    values: NDArray[np.generic], units: NDArray[np.int64], samples: int, seed: int
) -> tuple[list[Estimate], Floats | None]:
    """Returns the mean of each row of values [K N] with its interval, where `units` [N] numbers the span of
    each target, and the samples [samples K]; no intervals and None where there are too few spans.

    >>> draw_means(np.array([[1.0, 2.0, 3.0]]), np.array([0, 0, 1]), samples=100, seed=0)
    ([Estimate(value=2.0, low=None, high=None)], None)
    """
    _, numbers = np.unique(units, return_inverse=True)
    above = np.stack([np.bincount(numbers, row).astype(np.float64) for row in values], 1)
    below = np.repeat(np.bincount(numbers)[:, None].astype(np.float64), len(values), 1)
    means = (above.sum(0) / below.sum(0)).tolist()
    if len(above) < FEWEST_UNITS:
        return [Estimate(mean) for mean in means], None
    drawn = sample_ratios(above, below, samples, seed)
    return [with_interval(mean, drawn[:, i]) for i, mean in enumerate(means)], drawn
