"""Temperature scaling: the derivative is the derivative, the minimum the minimum, and the NLL never rises."""

import numpy as np
import pytest
import torch

from pellucid.evaluation.calibration.states import HeldStates
from pellucid.evaluation.calibration.temperature import HIGHEST, LOWEST, fit_temperature, measure_step
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states


def compute_nll(states: HeldStates, temperature: float) -> float:
    """The NLL by PyTorch's own cross-entropy."""
    targets = torch.from_numpy(states.targets)
    return float(torch.nn.functional.cross_entropy(states.hidden / temperature, targets))


def search_golden_section(states: HeldStates) -> float:
    """The temperature with the smallest NLL, found without any derivative, in ln T."""
    low, high, ratio = np.log(LOWEST), np.log(HIGHEST), (np.sqrt(5) - 1) / 2
    for _ in range(80):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if compute_nll(states, np.exp(a)) < compute_nll(states, np.exp(b)):
            high = b
        else:
            low = a
    return float(np.exp((low + high) / 2))


@pytest.mark.parametrize("seed", range(8))
def test_the_fitted_temperature_is_that_of_a_search_without_derivatives(seed: int) -> None:
    states = random_states(seed)
    fit = fit_temperature(states)
    assert fit.temperature == pytest.approx(search_golden_section(states), rel=1e-5)
    assert fit.steps[-1].nll == pytest.approx(compute_nll(states, fit.temperature), rel=1e-12)
    assert abs(fit.steps[-1].gradient) < 1e-5 and not fit.is_bounded


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.5])
def test_the_derivatives_are_central_differences(beta: float) -> None:
    states, h = random_states(3), 1e-5
    here = measure_step(states, beta)
    above, below = measure_step(states, beta + h), measure_step(states, beta - h)
    assert here.gradient == pytest.approx((above.nll - below.nll) / (2 * h), rel=1e-7)
    assert here.curvature == pytest.approx((above.gradient - below.gradient) / (2 * h), rel=1e-7)
    ends = [compute_nll(states, 1 / beta + sign * h) for sign in (1, -1)]
    assert here.temperature_gradient == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("count", [40, pytest.param(4000, marks=pytest.mark.torture)])
def test_the_nll_never_rises_from_step_to_step(count: int) -> None:
    """For logits from 1e-8 to 1000, of one token to eleven, of one target to sixty."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        sizes = int(rng.integers(1, 60)), int(rng.integers(1, 12))
        states = random_states(seed, *sizes, 10 ** rng.uniform(-8, 3))
        fit = fit_temperature(states)
        nll = [step.nll for step in fit.steps]
        assert nll == sorted(nll, reverse=True), seed
        assert LOWEST * 0.999 < fit.temperature < HIGHEST * 1.001, seed


def test_ten_predictions_by_hand_have_the_derivative_nll_minus_entropy() -> None:
    """With z = ln p, E_p[z] is minus the entropy, and z_y is minus the nll."""
    probs = np.exp(ten_states().hidden.numpy())
    first = fit_temperature(ten_states()).steps[0]
    entropy = -(probs * np.log(probs)).sum(-1).mean()
    assert first.gradient == pytest.approx(first.nll - entropy)


def test_where_every_prediction_is_right_the_temperature_stops_at_its_limit() -> None:
    states = make_states(np.array([[2.0, 0, 0]] * 6), np.zeros(6))
    fit = fit_temperature(states)
    assert fit.is_bounded and fit.temperature == pytest.approx(LOWEST)


def test_where_every_prediction_is_wrong_it_stops_at_the_other_limit() -> None:
    states = make_states(np.array([[2.0, 0, -2.0]] * 6), np.full(6, 2))
    fit = fit_temperature(states)
    assert fit.is_bounded and fit.temperature == pytest.approx(HIGHEST)


def test_an_nll_that_falls_to_zero_before_the_limit_has_no_minimum() -> None:
    fit = fit_temperature(make_states(3 * np.eye(5), np.arange(5)))
    assert fit.is_bounded and fit.temperature < 2 * LOWEST and fit.steps[-1].nll < 1e-9


def test_probabilities_that_are_nearly_0_and_1_do_not_stop_the_fit() -> None:
    """The curvature is so small there that a step to the limit has an η of 1e-10."""
    rng = np.random.default_rng(0)
    fit = fit_temperature(make_states(rng.normal(size=(5, 50)) * 1000, rng.integers(0, 50, 5)))
    assert fit.steps[0].curvature < 1e-3 < fit.steps[0].gradient
    assert fit.is_bounded and fit.temperature == pytest.approx(HIGHEST)


def test_equal_logits_keep_the_temperature_1() -> None:
    fit = fit_temperature(make_states(np.ones((5, 4)), np.arange(5) % 4))
    assert fit.temperature == 1 and len(fit.steps) == 1 and not fit.is_bounded


def test_the_standard_error_is_how_far_fits_of_new_draws_are_apart() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 5)) * 2
    fits = []
    for _ in range(60):
        noise = -np.log(-np.log(rng.uniform(size=logits.shape)))
        fits.append(fit_temperature(make_states(logits, (logits + noise).argmax(-1))))
    spread = np.std([fit.temperature for fit in fits])
    assert fits[0].standard_error == pytest.approx(spread, rel=0.3)
