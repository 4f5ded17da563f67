"""The gradient is right, the loss never rises, and the minimum is the one that algebra gives."""

import math

import numpy as np
import pytest

from pellucid.interpretability import logistic_regression
from pellucid.interpretability.logistic_regression import (
    compute_loss,
    fit_logistic_regression,
    multiply_hessian,
)

RANDOM = np.random.default_rng(0)
FEATURES, LABELS = RANDOM.normal(size=(30, 4)), RANDOM.integers(0, 3, 30)
WEIGHTS, DIRECTION = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))
STEP = 1e-5


def test_the_gradient_equals_central_differences() -> None:
    _, gradient = compute_loss(WEIGHTS, FEATURES, LABELS, 0.1)
    for i in range(4):
        for k in range(3):
            moved = np.zeros((4, 3))
            moved[i, k] = STEP
            ahead, behind = (
                compute_loss(WEIGHTS + sign * moved, FEATURES, LABELS, 0.1)[0] for sign in (1, -1)
            )
            assert gradient[i, k] == pytest.approx((ahead - behind) / (2 * STEP), abs=1e-9)


def test_the_hessian_equals_central_differences_of_the_gradient() -> None:
    _, probs = logistic_regression._run(WEIGHTS, FEATURES, LABELS, 0.1)
    ahead, behind = (
        compute_loss(WEIGHTS + sign * STEP * DIRECTION, FEATURES, LABELS, 0.1)[1] for sign in (1, -1)
    )
    found = multiply_hessian(DIRECTION, FEATURES, 0.1, probs)
    assert found == pytest.approx((ahead - behind) / (2 * STEP), abs=1e-9)


@pytest.mark.parametrize("ridge", [1e-4, 1e-2, 1.0])
def test_the_loss_never_rises_and_the_gradient_ends_near_zero(ridge: float) -> None:
    features = FEATURES * np.array([100.0, 1.0, 1e-3, 1.0])
    fit = fit_logistic_regression(features, LABELS, 3, ridge)
    assert fit.losses[0] == pytest.approx(math.log(3))
    assert all(after <= before for before, after in zip(fit.losses, fit.losses[1:], strict=False))
    loss, gradient = compute_loss(fit.weights, features, LABELS, ridge)
    assert loss == fit.losses[-1]
    lower = [compute_loss(fit.weights - size * gradient, features, LABELS, ridge)[0] for size in (1e-4, 1e-2)]
    assert min(lower) > loss - logistic_regression.TOLERANCE
    closer = fit_logistic_regression(features, LABELS, 3, ridge, tolerance=1e-14)
    assert np.abs(compute_loss(closer.weights, features, LABELS, ridge)[1]).max() < 1e-5
    assert loss - logistic_regression.TOLERANCE < closer.losses[-1] <= loss


def test_a_constant_feature_alone_gives_the_shares_of_the_classes() -> None:
    labels = np.array([0] * 5 + [1] * 3 + [2] * 2)
    fit = fit_logistic_regression(np.ones((10, 1)), labels, 3, 1e-9, tolerance=1e-14)
    odds = np.exp(fit.weights[0])
    assert odds / odds.sum() == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)


def test_one_feature_and_two_classes_solve_one_equation() -> None:
    """x = ±1 with y = [x > 0]: w = (−a, a) with 1 − σ(2a) = λ a, from the gradient of one class."""
    ridge = 0.1
    fit = fit_logistic_regression(np.array([[1.0], [-1.0]]), np.array([1, 0]), 2, ridge, 1e-14)
    low, a = fit.weights[0]
    assert low == pytest.approx(-a)
    assert 1 - 1 / (1 + math.exp(-2 * a)) == pytest.approx(ridge * a, abs=1e-6)


def test_separable_classes_are_predicted() -> None:
    fit = fit_logistic_regression(np.eye(3), np.arange(3), 3, 1e-3)
    assert fit.predict(np.eye(3)).tolist() == [0, 1, 2]
