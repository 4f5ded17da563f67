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
from pellucid.evaluation.calibration.bins import (
    Bins,
    equal_mass_edges,
    equal_width_edges,
    find_bins,
    make_bins,
)
from pellucid.evaluation.calibration.predictions import Predictions
from pellucid.evaluation.result import Estimate

Array = NDArray[np.float64]


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
