"""Multinomial logistic regression with ridge, by Newton's method: a convex problem with one solution.

    L(W) = mean_n −ln softmax(x_n W)[y_n] + ½ λ ‖W‖²
    ∇L   = Xᵀ (P − Y) / N + λ W                         P = softmax(X W), Y one-hot
    H[D] = Xᵀ (P ⊙ (X D − (P ⊙ X D) 1)) / N + λ D       the second derivative along D

A step solves H[D] = −∇L by conjugate gradients and is halved until the loss falls, so that it never rises.
The curvature of the softmax is at most ½, so that ½ XᵀX / N + λ bounds H from above (Böhning 1992); its
inverse preconditions the conjugate gradients.
"""

from dataclasses import dataclass

import numpy as np

from pellucid.base.dtypes import Array

STEPS, INNER_STEPS = 60, 60
"""Newton steps, and steps of conjugate gradients in each, at most."""
TOLERANCE = 1e-4
"""Newton stops where another step would lower the loss by less than this, by its quadratic model."""
INNER_TOLERANCE = 0.25
"""Conjugate gradients stop where the square of the residual's norm, as preconditioned, is this much less."""


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """The weights [C K] of K classes, and the loss before each step and after the last."""

    weights: Array
    losses: tuple[float, ...]

    def predict(self, features: Array) -> Array:
        """Returns the most probable class of each row, [N]."""
        return np.asarray((features @ self.weights).argmax(1))


def compute_loss(weights: Array, features: Array, labels: Array, ridge: float) -> tuple[float, Array]:
    """Returns L(W) for features [N C] and labels [N], and its gradient [C K]."""
    loss, probs = _run(weights, features, labels, ridge)
    return loss, _compute_gradient(weights, features, labels, ridge, probs)


def _run(weights: Array, features: Array, labels: Array, ridge: float) -> tuple[float, Array]:
    """Returns the loss and the probabilities [N K]."""
    logits = features @ weights
    logits -= logits.max(1, keepdims=True)
    probs = np.exp(logits)
    total = probs.sum(1)
    probs /= total[:, None]
    nll = float((np.log(total) - logits[np.arange(len(labels)), labels]).mean())
    return nll + 0.5 * ridge * float((weights**2).sum()), probs


def _compute_gradient(weights: Array, features: Array, labels: Array, ridge: float, probs: Array) -> Array:
    errors = probs.copy()
    errors[np.arange(len(labels)), labels] -= 1
    return np.asarray(features.T @ errors / len(labels) + ridge * weights)


def multiply_hessian(direction: Array, features: Array, ridge: float, probs: Array) -> Array:
    """Returns H[D], [C K]."""
    moved = probs * (features @ direction)
    moved -= probs * moved.sum(1, keepdims=True)
    return np.asarray(features.T @ moved / len(features) + ridge * direction)


def fit_logistic_regression(
    features: Array, labels: Array, n_classes: int, ridge: float, tolerance: float = TOLERANCE
) -> LogisticRegression:
    """Returns the minimum of L for features [N C] and labels [N] of 0 … K−1, from W = 0; ridge λ > 0."""
    weights, losses = np.zeros((features.shape[1], n_classes)), []
    bound = 0.5 * features.T @ features / len(features)
    bound[np.diag_indices_from(bound)] += ridge
    inverse = np.linalg.inv(bound)
    loss, probs = _run(weights, features, labels, ridge)
    losses.append(loss)
    for _ in range(STEPS):
        gradient = _compute_gradient(weights, features, labels, ridge, probs)
        step = _solve(gradient, features, ridge, probs, inverse)
        decrease = -float((step * gradient).sum())
        if decrease < 2 * tolerance:
            break
        size = 1.0
        while size > 1e-9:
            moved = weights + size * step
            new_loss, new_probs = _run(moved, features, labels, ridge)
            if new_loss <= loss - 1e-4 * size * decrease:
                break
            size /= 2
        else:
            break
        weights, loss, probs = moved, new_loss, new_probs
        losses.append(loss)
    return LogisticRegression(weights, tuple(losses))


def _solve(gradient: Array, features: Array, ridge: float, probs: Array, inverse: Array) -> Array:
    """Returns about the D with H[D] = −gradient, by preconditioned conjugate gradients from 0."""
    found, residual = np.zeros_like(gradient), -gradient
    scaled = inverse @ residual
    direction, size = scaled, float((residual * scaled).sum())
    first = size
    for _ in range(INNER_STEPS):
        curved = multiply_hessian(direction, features, ridge, probs)
        length = size / float((direction * curved).sum())
        found = found + length * direction
        residual = residual - length * curved
        scaled = inverse @ residual
        before, size = size, float((residual * scaled).sum())
        if size <= INNER_TOLERANCE * first:
            break
        direction = scaled + size / before * direction
    return found
