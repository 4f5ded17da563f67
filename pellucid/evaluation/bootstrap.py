"""Confidence intervals by bootstrap over documents: a figure is a ratio of sums, Σ above / Σ below.

A sample draws as many documents as there are, with replacement, and computes the ratio again; the interval
holds the middle 95 % of the samples. Documents are drawn whole, because the tokens of one depend on each
other. Two models are compared on the same samples, so that documents that are hard for both cancel out:

    p = 2 · (1 + min(samples with a difference ≤ 0, samples with one ≥ 0)) / (samples + 1), at most 1
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pellucid.evaluation.result import Estimate

SAMPLES = 1000
LEVEL = 0.95
Floats = NDArray[np.float64]


def sample_ratios(above: Floats, below: Floats, samples: int, seed: int) -> Floats:
    """Returns Σ above / Σ below of each sample, [samples K], for values [D K] of D documents; the K ratios of
    a sample are of the same documents. NaN where Σ below is 0."""
    count, random = len(above), np.random.default_rng(seed)
    found = np.empty((samples, above.shape[1]))
    for i in range(samples):
        weights = np.bincount(random.integers(0, count, count), minlength=count).astype(np.float64)
        sums = weights @ below
        found[i] = (weights @ above) / np.where(sums > 0, sums, np.nan)
    return found


def estimate_ratios(ratios: Sequence[tuple[ArrayLike, ArrayLike]], samples: int, seed: int) -> list[Estimate]:
    """Returns Σ above / Σ below of each pair (above [D], below [D]), with its interval; without one where
    there is one document.

    >>> estimate_ratios([([1.0, 2.0, 9.0], [2, 2, 2])], samples=100, seed=0)
    [Estimate(value=2.0, low=0.5, high=4.5)]
    """
    above, below = (np.array(values, np.float64).T for values in zip(*ratios, strict=True))
    values = above.sum(0) / below.sum(0)
    sampled = sample_ratios(above, below, samples, seed) if len(above) > 1 else None
    return [
        with_interval(float(value), None if sampled is None else sampled[:, k])
        for k, value in enumerate(values)
    ]


def with_interval(value: float, sampled: Floats | None) -> Estimate:
    """Returns a figure with the middle 95 % of its samples."""
    if sampled is None or np.isnan(sampled).all():
        return Estimate(value)
    low, high = np.nanquantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))


def compute_p_value(differences: Floats) -> float:
    """Returns the two-sided p-value of the hypothesis that the true difference is 0."""
    fewer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + fewer) / (len(differences) + 1))


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
