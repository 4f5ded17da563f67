"""The curves of the feed-forward and of the first lessons, each with its slope beside it."""

import math
from typing import Any

import numpy as np

from pellucid.reference.op import each, operation

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    """The error function; NumPy has none, so the standard library's, entry by entry."""
    y = _erf(x)
    return y.astype(x.dtype) if isinstance(y, np.ndarray) else y


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))  # 1 / (1 + e^−x), and cannot overflow


def _plain_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + erf(x / math.sqrt(2)))


def _normal_pdf(x: Any) -> Any:
    return np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


def _gelu_tanh_inner(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


@operation(each, "{y} = max(0, {0})")
def relu(x: Any) -> Any:
    """y = max(0, x)."""
    return np.maximum(0.0, x)


@relu.slope
@operation(each, "{y} = {1} if {0} > 0, else 0")
def relu_back(x: Any, dy: Any) -> Any:
    """dx = dy where x > 0, else 0."""
    return np.where(x > 0, dy, 0.0)


@operation(each, "{y} = 1 / (1 + e^(-{0}))")
def sigmoid(x: Any) -> Any:
    """y = 1 / (1 + e^−x)."""
    return _sigmoid(x)


sigmoid.show(_plain_sigmoid)


@sigmoid.slope
@operation(each, "{y} = σ({0}) · (1 - σ({0})) · {1}")
def sigmoid_back(x: Any, dy: Any) -> Any:
    """dx = σ(x) (1 − σ(x)) dy."""
    return _sigmoid(x) * (1 - _sigmoid(x)) * dy


@sigmoid_back.show
def _(x: Any, dy: Any) -> Any:
    return _plain_sigmoid(x) * (1 - _plain_sigmoid(x)) * dy


@operation(each, "{y} = tanh({0})")
def tanh(x: Any) -> Any:
    """y = tanh x."""
    return np.tanh(x)


@tanh.slope
@operation(each, "{y} = (1 - tanh({0})²) · {1}")
def tanh_back(x: Any, dy: Any) -> Any:
    """dx = (1 − tanh² x) dy."""
    return (1 - np.tanh(x) ** 2) * dy


@operation(each, "{y} = {0} / (1 + e^(-{0}))")
def silu(x: Any) -> Any:
    """y = x σ(x)."""
    return x * _sigmoid(x)


@silu.show
def _(x: Any) -> Any:
    return x / (1 + np.exp(-x))


@silu.slope
@operation(each, "{y} = σ({0}) · (1 + {0} · (1 - σ({0}))) · {1}")
def silu_back(x: Any, dy: Any) -> Any:
    """dx = σ(x) (1 + x (1 − σ(x))) dy."""
    return _sigmoid(x) * (1 + x * (1 - _sigmoid(x))) * dy


@silu_back.show
def _(x: Any, dy: Any) -> Any:
    return _plain_sigmoid(x) * (1 + x * (1 - _plain_sigmoid(x))) * dy


@operation(each, "{y} = {0} · Φ({0}),  Φ(x) = (1 + erf(x / √2)) / 2")
def gelu(x: Any) -> Any:
    """y = x Φ(x), Φ the standard normal distribution."""
    return x * _normal_cdf(x)


@gelu.slope
@operation(each, "{y} = (Φ({0}) + {0} · φ({0})) · {1},  φ(x) = e^(-x² / 2) / √(2π)")
def gelu_back(x: Any, dy: Any) -> Any:
    """dx = (Φ(x) + x φ(x)) dy."""
    return (_normal_cdf(x) + x * _normal_pdf(x)) * dy


@operation(each, "{y} = {0} · (1 + tanh(u({0}))) / 2,  u(x) = √(2/π) · (x + 0.044715 · x³)")
def gelu_tanh(x: Any) -> Any:
    """y = ½ x (1 + tanh u), u = √(2/π) (x + 0.044715 x³)."""
    return 0.5 * x * (1 + np.tanh(_gelu_tanh_inner(x)))


@gelu_tanh.slope
@operation(
    each,
    "{y} = (1 + tanh(u({0})) + {0} · (1 - tanh(u({0}))²) · w({0})) / 2 · {1},  "
    "w(x) = √(2/π) · (1 + 0.134145 · x²)",
)
def gelu_tanh_back(x: Any, dy: Any) -> Any:
    """dx = ½ (1 + tanh u + x (1 − tanh² u) u') dy."""
    t = np.tanh(_gelu_tanh_inner(x))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + t + x * (1 - t**2) * slope) * dy
