"""Confidence intervals by bootstrap over documents: seeded, of ratios of sums, paired for two models."""

import numpy as np
import pytest

from pellucid.evaluation.bootstrap import (
    FEWEST_UNITS,
    compute_p_value,
    draw_means,
    estimate_ratios,
    sample_ratios,
    with_interval,
)


def test_a_ratio_of_sums_weighs_documents_by_their_length() -> None:
    (found,) = estimate_ratios([([10.0, 1.0], [10, 4])], samples=10, seed=0)
    assert found.value == 11 / 14


def test_one_document_has_no_interval() -> None:
    (found,) = estimate_ratios([([10.0], [4])], samples=10, seed=0)
    assert found.value == 2.5 and found.low is found.high is None


def test_the_same_seed_has_the_same_interval_and_another_seed_another() -> None:
    random = np.random.default_rng(1)
    above, below = random.normal(3, 1, 40), np.ones(40)
    first, again, other = (estimate_ratios([(above, below)], 200, seed)[0] for seed in (0, 0, 1))
    assert first == again != other and first.value == other.value


def test_equal_documents_have_an_interval_of_no_width() -> None:
    (found,) = estimate_ratios([([2.0] * 5, [4] * 5)], samples=50, seed=0)
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


def test_intervals_hold_the_true_mean_about_as_often_as_they_claim() -> None:
    random, hits = np.random.default_rng(0), 0
    for trial in range(100):
        (found,) = estimate_ratios([(random.normal(1, 1, 60), np.ones(60))], samples=200, seed=trial)
        assert found.low is not None and found.high is not None
        hits += found.low <= 1 <= found.high
    assert 88 <= hits <= 99


def test_the_interval_of_a_mean_is_that_of_the_central_limit() -> None:
    values = np.random.default_rng(0).normal(0, 2, 400)
    (found,) = estimate_ratios([(values, np.ones(400))], samples=2000, seed=0)
    width = 2 * 1.96 * values.std() / np.sqrt(400)
    assert found.high is not None and found.low is not None
    assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_models_are_sampled_on_the_same_documents() -> None:
    """The second model costs exactly one more on every document, however different documents are."""
    random = np.random.default_rng(0)
    first = random.normal(100, 50, 30)
    ratios = sample_ratios(np.stack([first, first + 1], 1), np.ones((30, 2)), 300, 0)
    assert ratios[:, 1] - ratios[:, 0] == pytest.approx(1)


def test_a_sample_draws_as_many_documents_as_there_are() -> None:
    """Of two documents with 1 and 3: both the first, one of each or both the second, by 1/4, 1/2 and 1/4."""
    found = sample_ratios(np.array([[1.0], [3.0]]), np.ones((2, 1)), 2000, 0)[:, 0]
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [1, 2, 3]
    assert counts / 2000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_a_sample_without_anything_to_divide_by_does_not_spoil_the_interval() -> None:
    sampled = sample_ratios(np.array([[1.0], [0.0]]), np.array([[2.0], [0.0]]), 100, 0)[:, 0]
    assert np.isnan(sampled).any()
    assert with_interval(0.5, sampled).low == 0.5
    assert with_interval(0.5, np.array([np.nan])).low is None


def test_p_values_by_hand() -> None:
    assert compute_p_value(np.array([1.0] * 99)) == 2 / 100
    assert compute_p_value(np.array([-1.0] * 5 + [1.0] * 94)) == pytest.approx(12 / 100)
    assert compute_p_value(np.array([-1.0, 1.0])) == 1
    assert compute_p_value(np.zeros(9)) == 1


def test_means_are_over_targets_and_all_figures_have_the_same_samples() -> None:
    random = np.random.default_rng(0)
    units = np.repeat(np.arange(10), 5)
    values = np.stack([random.normal(size=50), np.ones(50)])
    values = np.stack([*values, values[0] + 1])
    estimates, drawn = draw_means(values, units, samples=200, seed=0)
    assert drawn is not None and drawn.shape == (200, 3)
    assert estimates[0].value == values[0].mean() and (estimates[1].low, estimates[1].high) == (1.0, 1.0)
    assert np.allclose(drawn[:, 2] - drawn[:, 0], 1.0)
    low, high = estimates[0].low, estimates[0].high
    assert low is not None and high is not None and low < estimates[0].value < high


def test_few_spans_have_no_interval() -> None:
    units = np.arange(FEWEST_UNITS - 1)
    (estimate,), drawn = draw_means(np.ones((1, len(units))), units, samples=10, seed=0)
    assert drawn is None and estimate.low is None
