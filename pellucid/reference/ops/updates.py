"""The arithmetic of optimizers, cell by cell: clipping, moments, and the new value of a parameter."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Index, Shape, each, everything, operation


@operation(everything, "{y} = √(Σ of the squares of every gradient)")
def global_norm(*gradients: Any) -> Any:
    """‖g‖ = √(Σ g²) over all gradients together."""
    return np.sqrt(functools.reduce(operator.add, ((g**2).sum() for g in gradients)))


@operation(each, "{y} = {limit} / max({0}, {limit})")
def clip_factor(norm: Any, limit: float) -> Any:
    """limit / max(‖g‖, limit): 1 while ‖g‖ is within the limit."""
    return limit / np.maximum(norm, limit)


def _ema_formula(index: Index, shapes: Sequence[Shape], beta: float, power: int = 1) -> str:
    return f"{{y}} = {beta:g} · {{0}} + (1 - {beta:g}) · {{1}}{'²' if power == 2 else ''}"


@operation(each, _ema_formula)
def ema(old: Any, g: Any, beta: float, power: int = 1) -> Any:
    """m' = β m + (1 − β) g^n: an exponential moving average; Adam's moments are n = 1 and n = 2."""
    return beta * old + (1 - beta) * (g if power == 1 else g**power)


@operation(each, "{y} = {beta} · {0} + {1}")
def accumulate(old: Any, g: Any, beta: float) -> Any:
    """m' = β m + g: momentum as in PyTorch."""
    return beta * old + g


@operation(each, "{y} = {0} - {lr} · {1}")
def sgd(w: Any, g: Any, lr: float) -> Any:
    """w' = w − η g."""
    return w - lr * g


@operation(each, "{y} = {0} - {lr} · {1} / {2}")
def newton(w: Any, g: Any, h: Any, lr: float) -> Any:
    """w' = w − η g / h: Newton's step for one number, h the second derivative."""
    return w - lr * g / h


@operation(
    each,
    "{y} = {0} - {lr} · ({1} / (1 - {beta1}^{t}) / (√({2} / (1 - {beta2}^{t})) + {eps}) + {decay} · {0})",
)
def adamw(
    w: Any, m: Any, v: Any, t: int, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> Any:
    """w' = w − η (m̂ / (√v̂ + ε) + λ w), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ)."""
    step = m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)
    return w - lr * (step + decay * w)


@operation(each, "{y} = {0} - {lr} · {1} / (1 - {beta1}^{t}) / (√({2} / (1 - {beta2}^{t})) + {eps})")
def adam(w: Any, m: Any, v: Any, t: int, lr: float, beta1: float, beta2: float, eps: float) -> Any:
    """w' = w − η m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ)."""
    return w - lr * m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)


@operation(each, "{y} = {0} - {lr} · ({scale} · {1} + {decay} · {0})")
def muon(w: Any, update: Any, lr: float, scale: float, decay: float) -> Any:
    """w' = w − η (s X + λ w), X the nearly orthogonal matrix of Newton–Schulz."""
    return w - lr * (scale * update + decay * w)


@operation(everything, "{y} = √(Σ of the squares of all cells of {0[]})")
def frobenius_norm(x: Any) -> Any:
    """‖X‖ = √(Σ x²), the Frobenius norm."""
    return np.sqrt((x**2).sum())


@operation(each, "{y} = {0} / max({1}, {eps})")
def divide_by_norm(x: Any, norm: Any, eps: float) -> Any:
    """X / max(‖X‖, ε), so that no singular value is above 1; a zero matrix stays zero."""
    return x / np.maximum(norm, eps)
