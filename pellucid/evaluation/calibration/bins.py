"""Bins of predictions by confidence: how often the predictions of a bin are right, and how sure they were.

    bins = make_bins(confidence, is_correct, equal_width_edges(15))
    bins.ece        # Σ_m |B_m|/n · |acc(B_m) − conf(B_m)|

Bin m holds the predictions with edge_m < confidence ≤ edge_{m+1}, so that equal confidences are in one bin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DEFAULT_BINS = 15
"""As in Guo et al. 2017, arXiv:1706.04599."""
TIE = 1e-6
"""Confidences that differ by less are equal: so much they differ by the rounding of logits in float32."""


def equal_width_edges(count: int) -> Array:
    """Returns count + 1 edges from 0 to 1, all the same distance apart.

    >>> equal_width_edges(4).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return np.arange(count + 1) / count


def equal_mass_edges(confidence: Array, count: int) -> Array:
    """Returns the edges from 0 to 1 of bins with about as many predictions each.

    An edge is halfway between two confidences. Those that differ by less than `TIE` are equal and stay in one
    bin, so that there are fewer bins than `count` where many are equal.

    >>> equal_mass_edges(np.array([0.1, 0.2, 0.4, 0.9]), 2).round(4).tolist()
    [0.0, 0.3, 1.0]
    """
    ordered = np.sort(confidence)
    last = np.ceil(np.arange(1, count) * len(ordered) / count).astype(int) - 1
    above = np.searchsorted(ordered, ordered[last[last >= 0]] + TIE, side="right")
    above = np.unique(above[above < len(ordered)])
    return np.concatenate(([0.0], (ordered[above - 1] + ordered[above]) / 2, [1.0]))


def find_bins(confidence: Array, edges: Array) -> NDArray[np.int64]:
    """Returns the bin of each prediction, [N]: the m with edges_m < confidence ≤ edges_{m+1}."""
    return np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, len(edges) - 2)


@dataclass(frozen=True)
class Bins:
    """Bins between edges [M+1], and what their predictions add up to, [M] each."""

    edges: Array
    counts: Array
    confidence_sums: Array
    correct_sums: Array

    @property
    def confidence(self) -> Array:
        """The mean confidence of each bin; 0 where it is empty."""
        return self.confidence_sums / np.maximum(self.counts, 1)

    @property
    def accuracy(self) -> Array:
        """The fraction of each bin's predictions that are right; 0 where it is empty."""
        return self.correct_sums / np.maximum(self.counts, 1)

    @property
    def gap(self) -> Array:
        """Accuracy − confidence: negative where the model is overconfident."""
        return self.accuracy - self.confidence

    @property
    def weight(self) -> Array:
        """The share of all predictions that each bin has."""
        return self.counts / max(float(self.counts.sum()), 1.0)

    @property
    def ece(self) -> float:
        """The expected calibration error Σ_m |B_m|/n · |acc − conf|."""
        return float((self.weight * np.abs(self.gap)).sum())

    @property
    def mce(self) -> float:
        """The maximum calibration error: the largest |acc − conf| of a bin."""
        return float(np.abs(self.gap).max())


def make_bins(confidence: Array, is_correct: NDArray[np.bool_], edges: Array) -> Bins:
    """Returns the bins of some predictions."""
    where, count = find_bins(confidence, edges), len(edges) - 1
    sums = (np.bincount(where, weights, count) for weights in (None, confidence, is_correct))
    return Bins(edges, *(np.asarray(each, np.float64) for each in sums))
