"""Activation functions, under the names of the specification's operations.

torch's vectorized loops compute the last elements of a tensor one by one, by other instructions; `exp` and
`tanh` do not, so functions made of them give an element the same result wherever it stands.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.base import registry
from pellucid.engine.precision import is_row_invariant, widen

Activation = Callable[[Tensor], Tensor]


def make(name: str) -> Activation:
    """Returns the activation function of this name."""
    return registry.function_of(__name__, name, "activation")


@registry.kind("relu")
def relu(x: Tensor) -> Tensor:
    """ReLU: max(0, x)."""
    return torch.relu(x)


@registry.kind("relu_squared")
def relu_squared(x: Tensor) -> Tensor:
    """Squared ReLU: max(0, x)²."""
    return torch.relu(x).square()


@registry.kind("silu")
def silu(x: Tensor) -> Tensor:
    """SiLU: x σ(x)."""
    return x / (1 + torch.exp(-x)) if is_row_invariant(x) else F.silu(x)


@registry.kind("gelu")
def gelu(x: Tensor) -> Tensor:
    """GELU in its exact form: x Φ(x)."""
    return F.gelu(x)


@registry.kind("gelu_tanh")
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh approximation: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    if torch.compiler.is_compiling() and x.is_cuda:
        return gelu_by_sigmoid(x)
    if is_row_invariant(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return F.gelu(x, approximate="tanh")


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """GELU's tanh approximation by ½ (1 + tanh u) = σ(2 u): compiled for a GPU, σ takes no longer than
    reading x from memory, and tanh does."""
    y = widen(x)
    return (y * torch.sigmoid(math.sqrt(8 / math.pi) * (y + 0.044715 * y**3))).to(x.dtype)
