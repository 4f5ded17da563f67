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
    """With one sample the ends of the interval are both that one score, for the ECE reflected at it."""
    states = random_states(5)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(found, states.documents, bins=10, seed=3, samples=1)
    drawn = np.random.default_rng(3).integers(0, 8, 8)
    rows = np.concatenate([np.flatnonzero(states.documents == document) for document in drawn])
    mass = {k: values[rows] for k, values in found.top_mass.items()}
    again = Predictions(found.predicted[rows], found.rank[rows], found.nll[rows], found.brier[rows], mass)
    of_drawn = compute_scores(again, np.zeros(len(rows), np.int64), bins=10)
    for name in ("nll", "brier"):
        ours, theirs = getattr(scores, name), getattr(of_drawn, name)
        assert (ours.low, ours.high) == pytest.approx((theirs.value, theirs.value))
        assert theirs.low is None
    reflected = 2 * scores.ece.value - of_drawn.ece.value
    assert scores.ece.low == pytest.approx(max(reflected, 0))
    assert scores.ece.high == pytest.approx(max(reflected, scores.ece.value))


def test_an_interval_holds_the_figure() -> None:
    states = random_states(1, count=200)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(found, states.documents, bins=10)
    assert scores.nll.low < scores.nll.value < scores.nll.high
    assert scores.brier.low < scores.brier.value < scores.brier.high
    assert scores.ece.low <= scores.ece.value <= scores.ece.high


@pytest.mark.parametrize("true", [0.02, 0.1])
def test_the_interval_of_the_ece_holds_the_true_one(true: float) -> None:
    """Predictions that are right as often as they say, less `true`: the drawn ECEs alone are too large."""
    held = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        confidence = random.uniform(0.15, 0.95, 4000)
        rank = (random.random(4000) > confidence - true).astype(np.int64)
        found = Predictions(rank, rank, -np.log(confidence), 1 - confidence, {1: confidence})
        scores = compute_scores(found, np.arange(4000) // 40, bins=15, samples=100)
        assert scores.ece.low is not None and scores.ece.high is not None
        assert scores.ece.low <= scores.ece.value <= scores.ece.high
        held += scores.ece.low <= true <= scores.ece.high
    assert held >= 14
