"""The scores of some predictions: ECE, MCE and top-k calibration with their bins, Brier, and NLL.

Confidence intervals are percentiles over documents drawn with replacement; the bins keep their edges. Those
of the ECE are reflected at it: the noise of a bin counts as a gap, so a drawn ECE is above the ECE by about
as much as that is above the true one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.bootstrap import SAMPLES, estimate_ratios, sample_ratios, with_interval
from pellucid.evaluation.calibration.predictions import Predictions
from pellucid.evaluation.result import Estimate

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


@dataclass(frozen=True)
class CalibrationScores:
    """Means over the predictions, and their bins."""

    count: int
    nll: Estimate
    brier: Estimate
    ece: Estimate
    """The expected calibration error in bins of equal width."""
    accuracy: float
    confidence: float
    bins: Bins
    mass_bins: Bins
    top_bins: Mapping[int, Bins]
    """Bins of equal width for each k: how often the target is one of the k most probable tokens."""


def compute_scores(
    predictions: Predictions, units: NDArray[np.int64], bins: int, seed: int = 0, samples: int = SAMPLES
) -> CalibrationScores:
    """Returns the scores of at least one prediction; `units` [N] are the documents that are drawn."""
    edges, is_correct = equal_width_edges(bins), predictions.is_correct
    by_width = make_bins(predictions.confidence, is_correct, edges)
    mass_edges = equal_mass_edges(predictions.confidence, bins)
    present, rows = np.unique(units, return_inverse=True)
    counts, nll, brier = (
        np.asarray(np.bincount(rows, values, len(present)), np.float64)
        for values in (None, predictions.nll, predictions.brier)
    )
    nll_estimate, brier_estimate = estimate_ratios([(nll, counts), (brier, counts)], samples, seed)
    ece = None
    if len(present) > 1:
        # |B_m|/n · |acc − conf| is |Σ of right − confidence over the bin| / n
        shape = (len(present), bins)
        cells = rows * bins + find_bins(predictions.confidence, edges)
        gaps = np.asarray(
            np.bincount(cells, is_correct - predictions.confidence, len(present) * bins), np.float64
        ).reshape(shape)
        shares = sample_ratios(gaps, np.broadcast_to(counts[:, None], shape), samples, seed)
        ece = np.abs(shares).sum(-1)
    return CalibrationScores(
        count=len(predictions),
        nll=nll_estimate,
        brier=brier_estimate,
        ece=reflect_interval(with_interval(by_width.ece, ece)),
        accuracy=float(is_correct.mean()),
        confidence=float(predictions.confidence.mean()),
        bins=by_width,
        mass_bins=make_bins(predictions.confidence, is_correct, mass_edges),
        top_bins={
            k: make_bins(mass, predictions.is_in_top(k), edges) for k, mass in predictions.top_mass.items()
        },
    )


def reflect_interval(ece: Estimate) -> Estimate:
    """Returns an ECE with its interval reflected, max(0, 2 ECE − high) to max(ECE, 2 ECE − low).

    >>> reflect_interval(Estimate(0.25, 0.125, 0.75)), reflect_interval(Estimate(0.25, 0.5, 0.75))
    (Estimate(value=0.25, low=0.0, high=0.375), Estimate(value=0.25, low=0.0, high=0.25))
    """
    if ece.low is None or ece.high is None:
        return ece
    return Estimate(ece.value, max(0.0, 2 * ece.value - ece.high), max(ece.value, 2 * ece.value - ece.low))
