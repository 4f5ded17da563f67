"""Means over targets, with intervals where there are enough spans of them."""

import numpy as np

from pellucid.evaluation.quantization.intervals import FEWEST_UNITS, draw_means


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


def test_the_same_seed_draws_the_same_samples() -> None:
    values, units = np.random.default_rng(1).normal(size=(1, 100)), np.arange(100) // 5
    first, again, other = (draw_means(values, units, samples=20, seed=seed)[0] for seed in (3, 3, 4))
    assert first == again != other
