"""The scores of some predictions: ECE, MCE and top-k calibration with their bins, Brier, and NLL.

Confidence intervals are percentiles over documents drawn with replacement; the bins keep their edges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.calibration.bins import (
    Bins,
    equal_mass_edges,
    equal_width_edges,
    find_bins,
    make_bins,
)
from pellucid.evaluation.calibration.predictions import Predictions

Array = NDArray[np.float64]
RESAMPLES = 1000
LEVEL = 0.95


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class CalibrationScores:
    """Means over the predictions, their bins, and the intervals of `nll`, `brier` and `ece`, which are empty
    where there are fewer than two documents."""

    count: int
    nll: float
    brier: float
    accuracy: float
    confidence: float
    bins: Bins
    mass_bins: Bins
    top_bins: Mapping[int, Bins]
    """Bins of equal width for each k: how often the target is one of the k most probable tokens."""
    intervals: Mapping[str, Interval]

    @property
    def ece(self) -> float:
        """The expected calibration error in bins of equal width."""
        return self.bins.ece


def compute_scores(
    predictions: Predictions, units: NDArray[np.int64], bins: int, seed: int = 0
) -> CalibrationScores:
    """Returns the scores of at least one prediction; `units` [N] are the documents that are resampled."""
    edges = equal_width_edges(bins)
    mass_edges = equal_mass_edges(predictions.confidence, bins)
    is_correct = predictions.is_correct
    return CalibrationScores(
        len(predictions),
        float(predictions.nll.mean()),
        float(predictions.brier.mean()),
        float(is_correct.mean()),
        float(predictions.confidence.mean()),
        make_bins(predictions.confidence, is_correct, edges),
        make_bins(predictions.confidence, is_correct, mass_edges),
        {k: make_bins(mass, predictions.is_in_top(k), edges) for k, mass in predictions.top_mass.items()},
        _bootstrap(predictions, units, edges, seed),
    )


def _bootstrap(
    predictions: Predictions, units: NDArray[np.int64], edges: Array, seed: int
) -> dict[str, Interval]:
    """Returns the interval of each score: the numbers are sums over documents, which are drawn anew."""
    present, rows = np.unique(units, return_inverse=True)
    if len(present) < 2:
        return {}
    cells = rows * (len(edges) - 1) + find_bins(predictions.confidence, edges)
    shape = (len(present), len(edges) - 1)

    def total(weights: Array, by_bin: bool = True) -> Array:
        where, size = (cells, shape[0] * shape[1]) if by_bin else (rows, shape[0])
        return np.asarray(np.bincount(where, weights, size), np.float64).reshape(shape if by_bin else -1)

    counts = total(np.ones(len(rows)), by_bin=False)
    gaps = total(predictions.is_correct - predictions.confidence)
    draws = np.random.default_rng(seed).multinomial(
        len(present), np.full(len(present), 1 / len(present)), RESAMPLES
    )
    drawn = draws @ counts
    values = {
        "nll": draws @ total(predictions.nll, by_bin=False) / drawn,
        "brier": draws @ total(predictions.brier, by_bin=False) / drawn,
        # |B_m|/n · |acc − conf| is |Σ over the bin of right − confidence| / n
        "ece": np.abs(draws @ gaps).sum(-1) / drawn,
    }
    ends = (50 - 50 * LEVEL, 50 + 50 * LEVEL)
    return {name: Interval(*np.percentile(value, ends).tolist()) for name, value in values.items()}
