"""Scores: means over predictions, and intervals over documents that are sums of the right numbers."""

from itertools import pairwise

import numpy as np
import pytest

from pellucid.evaluation.calibration.predictions import Predictions, TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.scores import (
    compute_scores,
    equal_mass_edges,
    equal_width_edges,
    find_bins,
    make_bins,
)
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


CONFIDENCE = np.array([0.9, 0.9, 0.7, 0.7, 0.7, 0.7, 0.5, 0.5, 0.5, 0.5])
IS_CORRECT = np.array([True, False, True, True, False, True, True, False, False, True])


def ece_by_loops(confidence: list[float], is_correct: list[bool], edges: list[float]) -> float:
    """Follows the definition, one prediction at a time."""
    total = 0.0
    for low, high in pairwise(edges):
        inside = [i for i, c in enumerate(confidence) if low < c <= high]
        if inside:
            accuracy = sum(is_correct[i] for i in inside) / len(inside)
            mean = sum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - mean)
    return total


def test_ten_predictions_by_hand_in_bins_of_equal_width() -> None:
    """(0.4, 0.6]: 4 of 0.5, 2 right, gap 0.  (0.6, 0.8]: 4 of 0.7, 3 right, gap 0.75 − 0.7 = 0.05.
    (0.8, 1]: 2 of 0.9, 1 right, gap 0.5 − 0.9 = −0.4.  ECE = 0.4·0 + 0.4·0.05 + 0.2·0.4 = 0.1."""
    bins = make_bins(CONFIDENCE, IS_CORRECT, equal_width_edges(5))
    assert bins.counts.tolist() == [0, 0, 4, 4, 2]
    assert bins.confidence == pytest.approx([0, 0, 0.5, 0.7, 0.9])
    assert bins.accuracy.tolist() == [0, 0, 0.5, 0.75, 0.5]
    assert bins.gap == pytest.approx([0, 0, 0, 0.05, -0.4])
    assert bins.weight == pytest.approx([0, 0, 0.4, 0.4, 0.2])
    assert bins.ece == pytest.approx(0.1)
    assert bins.mce == pytest.approx(0.4)


def test_ten_predictions_by_hand_in_two_bins_of_equal_mass() -> None:
    """The fifth of ten in order is 0.7, and all four of 0.7 stay together: 8 and 2 predictions.
    5 of 8 right, confidence 4.8 / 8 = 0.6, gap 0.025; 1 of 2 right, 0.9, gap −0.4; 0.8·0.025 + 0.2·0.4."""
    edges = equal_mass_edges(CONFIDENCE, 2)
    bins = make_bins(CONFIDENCE, IS_CORRECT, edges)
    assert edges == pytest.approx([0, 0.8, 1])
    assert bins.counts.tolist() == [8, 2]
    assert bins.gap == pytest.approx([0.025, -0.4])
    assert bins.ece == pytest.approx(0.1)


def test_a_confidence_on_an_edge_is_in_the_bin_below_it() -> None:
    edges = equal_width_edges(4)
    assert find_bins(np.array([0.0, 0.25, 0.2500001, 0.5, 1.0]), edges).tolist() == [0, 0, 1, 1, 3]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 15, 100])
def test_ece_is_that_of_the_definition(count: int) -> None:
    rng = np.random.default_rng(count)
    confidence = np.round(rng.uniform(0.01, 1, 200), 2)  # with ties, some of them on edges
    is_correct = rng.uniform(size=200) < confidence**2
    for edges in (equal_width_edges(count), equal_mass_edges(confidence, count)):
        bins = make_bins(confidence, is_correct, edges)
        assert bins.counts.sum() == 200
        by_loops = ece_by_loops(confidence.tolist(), is_correct.tolist(), edges.tolist())
        assert bins.ece == pytest.approx(by_loops, abs=1e-14)


def test_bins_of_equal_mass_have_the_same_number_of_predictions_without_ties() -> None:
    confidence = np.random.default_rng(0).uniform(size=100)
    counts = make_bins(confidence, confidence > 0.5, equal_mass_edges(confidence, 10)).counts
    assert counts.tolist() == [10] * 10


def test_rounding_of_logits_moves_no_prediction_to_another_bin_of_equal_mass() -> None:
    """Predictions after the same tokens are as sure but for rounding, which differs by machine."""
    confidence = np.repeat([0.3, 0.5, 0.9], [4, 9, 7])
    expected = find_bins(confidence, equal_mass_edges(confidence, 5)).tolist()
    for seed in range(20):
        rounded = confidence + np.random.default_rng(seed).uniform(-3e-8, 3e-8, confidence.shape)
        assert find_bins(rounded, equal_mass_edges(rounded, 5)).tolist() == expected


def test_equal_confidences_make_one_bin() -> None:
    confidence = np.full(9, 0.5)
    bins = make_bins(confidence, np.arange(9) < 3, equal_mass_edges(confidence, 15))
    assert bins.counts.tolist() == [9]
    assert bins.ece == pytest.approx(0.5 - 3 / 9)


def test_confidences_that_differ_by_rounding_are_equal() -> None:
    confidence = np.array([0.3, 0.3 + 1e-16, 0.3 - 1e-16, 0.3 + 2e-16, 0.9])
    assert equal_mass_edges(confidence, 3) == pytest.approx([0, 0.6, 1])


def test_sure_and_right_has_no_error() -> None:
    bins = make_bins(np.ones(5), np.ones(5, bool), equal_width_edges(15))
    assert (bins.ece, bins.mce) == (0, 0)
