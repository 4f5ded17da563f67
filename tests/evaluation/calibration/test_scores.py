"""Scores: means over predictions, and intervals over documents that are sums of the right numbers."""

import numpy as np
import pytest

from pellucid.evaluation.calibration.predictions import Predictions, TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.scores import compute_scores
from tests.evaluation.calibration.small_predictions import random_states, ten_states


def test_ten_predictions_by_hand() -> None:
    states = ten_states()
    (predictions,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(predictions, states.documents, bins=5)
    assert scores.ece.value == pytest.approx(0.1)
    assert scores.brier.value == pytest.approx(0.6145)
    assert scores.accuracy == pytest.approx(0.6)
    assert scores.confidence == pytest.approx((2 * 0.9 + 4 * 0.7 + 4 * 0.5) / 10)
    assert scores.top_bins[1].ece == scores.ece.value


def test_a_sample_is_the_score_of_its_documents() -> None:
    """With one sample the ends of the interval are both that one score."""
    states = random_states(5)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(found, states.documents, bins=10, seed=3, samples=1)
    drawn = np.random.default_rng(3).integers(0, 8, 8)
    rows = np.concatenate([np.flatnonzero(states.documents == document) for document in drawn])
    mass = {k: values[rows] for k, values in found.top_mass.items()}
    again = Predictions(found.predicted[rows], found.rank[rows], found.nll[rows], found.brier[rows], mass)
    of_drawn = compute_scores(again, np.zeros(len(rows), np.int64), bins=10)
    for name in ("ece", "nll", "brier"):
        ours, theirs = getattr(scores, name), getattr(of_drawn, name)
        assert (ours.low, ours.high) == pytest.approx((theirs.value, theirs.value))
        assert theirs.low is None


def test_an_interval_holds_the_figure() -> None:
    states = random_states(1, count=200)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(found, states.documents, bins=10)
    assert scores.nll.low < scores.nll.value < scores.nll.high
    assert scores.brier.low < scores.brier.value < scores.brier.high
    assert scores.ece.low < scores.ece.high
