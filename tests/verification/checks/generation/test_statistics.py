"""Random draws pass the tests of randomness, and draws that are a little wrong do not."""

import math

import numpy as np
import pytest
import torch

from pellucid.verification.checks.generation.statistics import (
    DEVIATIONS,
    compute_bound,
    find_largest_gap,
    fit_frequencies,
    measure_correlation,
    merge_cells,
)


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 31])
def test_the_bound_is_exceeded_less_than_once_in_ten_billion_times(freedom: int) -> None:
    """The tail of χ² is Γ(k/2, x/2) / Γ(k/2), by torch; of the normal distribution, 4e-11."""
    half = torch.tensor([freedom, compute_bound(freedom)], dtype=torch.float64) / 2
    assert 1e-14 < float(torch.special.gammaincc(*half)) < 1e-10
    assert math.erfc(DEVIATIONS / math.sqrt(2)) / 2 == pytest.approx(4e-11, rel=0.02)


def test_right_frequencies_are_within_the_bound() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(np.full(300, 0.2))
        assert fit_frequencies(rng.choice(300, 1000, p=probs), probs).used < 0.8


def test_a_probability_that_is_off_is_found_with_its_cell() -> None:
    rng = np.random.default_rng(0)
    fit = fit_frequencies(rng.choice(4, 1000, p=[0.2, 0.4, 0.2, 0.2]), np.array([0.4, 0.2, 0.2, 0.2]))
    assert fit.used > 1 and fit.cell.tolist() in ([0], [1])


def test_one_cell_has_nothing_to_compare() -> None:
    assert fit_frequencies(np.zeros(50, int), np.array([1.0, 0.0])).used == 0


def test_every_cell_has_enough() -> None:
    expected = np.array([10.0, 3.0, 3.0, 3.0, 1.0, 1.0])
    assert np.add.reduceat(expected, merge_cells(expected, 5.0)).min() >= 5


def test_uniform_numbers_are_uniform_and_others_are_not() -> None:
    numbers = np.random.default_rng(1).random(300)
    assert find_largest_gap(numbers) < 0.5 < 1 < find_largest_gap(numbers / 2)
    assert find_largest_gap(np.full(300, 0.5)) > 1


def test_equal_sequences_are_correlated() -> None:
    one, other = np.random.default_rng(2).random((2, 200))
    assert abs(measure_correlation(one, other)) < 4 < 6.5 < measure_correlation(one, one)
    assert measure_correlation(one, 1 - one) < -6.5
