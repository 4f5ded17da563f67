"""Elementwise functions, each with its derivative beside it: the activations of the MLP, and the soft cap."""

import math
from typing import Any

import numpy as np

from pellucid.reference.op import Gradients, Ref, each, operation

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    """Returns the error function of each entry, by the standard library: NumPy does not have it."""
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


@relu.derivative
@operation(each, "{y} = {1} if {0} > 0, else 0")
def relu_back(x: Any, dy: Any) -> Any:
    """dx = dy where x > 0, else 0."""
    return np.where(x > 0, dy, 0.0)


@operation(each, "{y} = max(0, {0})²")
def relu_squared(x: Any) -> Any:
    """y = max(0, x)²."""
    return np.maximum(0.0, x) ** 2


@relu_squared.derivative
@operation(each, "{y} = 2 · max(0, {0}) · {1}")
def relu_squared_back(x: Any, dy: Any) -> Any:
    """dx = 2 max(0, x) dy: the derivative is continuous, and 0 at 0."""
    return 2 * np.maximum(0.0, x) * dy


@operation(each, "{y} = 1 / (1 + e^(-{0}))")
def sigmoid(x: Any) -> Any:
    """y = 1 / (1 + e^−x)."""
    return _sigmoid(x)


sigmoid.show(_plain_sigmoid)


@sigmoid.derivative
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


@tanh.derivative
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


@silu.derivative
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


@gelu.derivative
@operation(each, "{y} = (Φ({0}) + {0} · φ({0})) · {1},  φ(x) = e^(-x² / 2) / √(2π)")
def gelu_back(x: Any, dy: Any) -> Any:
    """dx = (Φ(x) + x φ(x)) dy."""
    return (_normal_cdf(x) + x * _normal_pdf(x)) * dy


@operation(each, "{y} = {0} · (1 + tanh(u({0}))) / 2,  u(x) = √(2/π) · (x + 0.044715 · x³)")
def gelu_tanh(x: Any) -> Any:
    """y = ½ x (1 + tanh u), u = √(2/π) (x + 0.044715 x³)."""
    return 0.5 * x * (1 + np.tanh(_gelu_tanh_inner(x)))


@gelu_tanh.derivative
@operation(
    each,
    "{y} = (1 + tanh(u({0})) + {0} · (1 - tanh(u({0}))²) · w({0})) / 2 · {1},  "
    "w(x) = √(2/π) · (1 + 0.134145 · x²)",
)
def gelu_tanh_back(x: Any, dy: Any) -> Any:
    """dx = ½ (1 + tanh u + x (1 − tanh² u) u') dy, with u as in `gelu_tanh`."""
    t = np.tanh(_gelu_tanh_inner(x))
    derivative = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + t + x * (1 - t**2) * derivative) * dy


@operation(each, "{y} = {limit} · tanh({0} / {limit})")
def soft_cap(x: Any, limit: float) -> Any:
    """y = c tanh(x / c): close to x where |x| is small, and never beyond ±c."""
    return limit * np.tanh(x / limit)


@soft_cap.gradient
def _(y: Ref, dy: Ref, x: Ref, limit: float) -> Gradients:
    yield x, soft_cap_back(x, dy, limit=limit)


@operation(each, "{y} = (1 - tanh({0} / {limit})²) · {1}")
def soft_cap_back(x: Any, dy: Any, limit: float) -> Any:
    """dx = (1 − tanh²(x / c)) dy."""
    return (1 - np.tanh(x / limit) ** 2) * dy
