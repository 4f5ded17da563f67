"""Predictions: ten by hand, the Brier score from one-hot targets, ranks of equals, and NaN logits."""

import math

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.evaluation.calibration import states as states_module
from pellucid.evaluation.calibration.predictions import TemperatureScaling, compute_predictions, find_tops
from tests.evaluation.calibration.small_predictions import TARGETS, make_states, random_states, ten_states

BY_HAND = [0.015, 1.715, 0.14, 0.14, 1.34, 0.14, 0.38, 0.98, 0.875, 0.42]
"""Σ_v (p_v − 1[v = y])²: (0.9 − 1)² + 0.05² + 0.05² = 0.015; 0.9² + (0.05 − 1)² + 0.05² = 1.715; …"""


def test_ten_predictions_by_hand() -> None:
    (found,) = compute_predictions(ten_states(), [TemperatureScaling(1.0)])
    assert found.confidence == pytest.approx([0.9, 0.9, 0.7, 0.7, 0.7, 0.7, 0.5, 0.5, 0.5, 0.5])
    assert found.predicted.tolist() == [0, 0, 0, 1, 2, 0, 0, 1, 0, 0]
    assert found.is_correct.tolist() == [True, False, True, True, False, True, True, False, False, True]
    assert found.brier == pytest.approx(BY_HAND)
    assert found.brier.mean() == pytest.approx(0.6145)
    # 0.9 · 0.05 · 0.7 · 0.7 · 0.1 · 0.7 · 0.5 · 0.2 · 0.25 · 0.5
    assert found.nll.sum() == pytest.approx(-math.log(1.929375e-5))


def test_the_brier_score_is_that_of_one_hot_targets() -> None:
    states = random_states(0)
    probs = torch.softmax(states.hidden / 0.7, -1).numpy()
    onehot = np.eye(7)[states.targets]
    (found,) = compute_predictions(states, [TemperatureScaling(0.7)])
    np.testing.assert_allclose(found.brier, ((probs - onehot) ** 2).sum(-1), rtol=1e-11)
    np.testing.assert_allclose(found.nll, -np.log((probs * onehot).sum(-1)), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.top_mass[5], np.sort(probs)[:, -5:].sum(-1), rtol=1e-12)
    order = np.argsort(-probs, axis=-1)[:, :5]
    assert found.is_in_top(5).tolist() == (order == states.targets[:, None]).any(-1).tolist()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states = random_states(1)
    (whole,) = compute_predictions(states, [TemperatureScaling(1.0)])
    monkeypatch.setattr(states_module, "CHUNK", 21)
    (parts,) = compute_predictions(states, [TemperatureScaling(1.0)])
    np.testing.assert_array_equal(whole.nll, parts.nll)
    np.testing.assert_array_equal(whole.rank, parts.rank)


def test_of_equal_logits_the_smallest_id_is_predicted() -> None:
    states = make_states(np.zeros((2, 12)), np.array([0, 5]))
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    assert found.predicted.tolist() == [0, 0]
    assert found.rank.tolist() == [0, 5]
    assert found.is_in_top(5).tolist() == [True, False]
    assert found.top_mass[10] == pytest.approx([10 / 12] * 2)


def test_a_vocabulary_smaller_than_k_has_no_top_k() -> None:
    assert [find_tops(size) for size in (1, 2, 5, 6, 10, 11)] == [
        (1,), (1,), (1,), (1, 5), (1, 5), (1, 5, 10)
    ]  # fmt: skip


def test_a_mass_is_never_above_1() -> None:
    logits = np.random.default_rng(0).normal(size=(500, 11)) * 40
    (found,) = compute_predictions(make_states(logits, np.zeros(500)), [TemperatureScaling(0.05)])
    assert max(mass.max() for mass in found.top_mass.values()) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    logits = np.log([[0.5, 0.5]] * 4)
    logits[3, 1] = bad
    with pytest.raises(UsageError, match="target 2 of text#1"):
        compute_predictions(make_states(logits, TARGETS[:4] % 2), [TemperatureScaling(1.0)])
