"""Scores: means over predictions, and intervals over documents that are sums of the right numbers."""

import numpy as np
import pytest

from pellucid.evaluation.calibration import scores as scores_module
from pellucid.evaluation.calibration.predictions import Predictions, TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.scores import compute_scores
from tests.evaluation.calibration.small_predictions import random_states, ten_states


def test_ten_predictions_by_hand() -> None:
    states = ten_states()
    (predictions,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scores = compute_scores(predictions, states.documents, bins=5)
    assert scores.ece == pytest.approx(0.1)
    assert scores.brier == pytest.approx(0.6145)
    assert scores.accuracy == pytest.approx(0.6)
    assert scores.confidence == pytest.approx((2 * 0.9 + 4 * 0.7 + 4 * 0.5) / 10)
    assert scores.top_bins[1].ece == scores.ece


def test_a_resample_is_the_score_of_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one resample the ends of the interval are both that one score."""
    monkeypatch.setattr(scores_module, "RESAMPLES", 1)
    states = random_states(5)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    intervals = compute_scores(found, states.documents, bins=10, seed=3).intervals
    drawn = np.random.default_rng(3).multinomial(8, np.full(8, 1 / 8), 1)[0]
    rows = np.concatenate([np.flatnonzero(states.documents == d) for d in range(8) for _ in range(drawn[d])])
    mass = {k: values[rows] for k, values in found.top_mass.items()}
    again = Predictions(found.predicted[rows], found.rank[rows], found.nll[rows], found.brier[rows], mass)
    scores = compute_scores(again, np.zeros(len(rows), np.int64), bins=10)
    assert intervals["ece"] == pytest.approx((scores.ece, scores.ece))
    assert intervals["nll"] == pytest.approx((scores.nll, scores.nll))
    assert intervals["brier"] == pytest.approx((scores.brier, scores.brier))


def test_one_document_has_no_interval() -> None:
    states = ten_states()
    (predictions,) = compute_predictions(states, [TemperatureScaling(1.0)])
    assert compute_scores(predictions, np.zeros(10, np.int64), bins=5).intervals == {}
