"""Residual connections; the kinds of `parts/residuals.py`."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.base import registry
from pellucid.parts.residuals import NoResidual, PlainResidual, ResidualConfig, ScaledResidual

AddResidual = Callable[[Tensor, Tensor], Tensor]


def make(residual: ResidualConfig) -> AddResidual:
    """Returns the function that adds a sub-layer's output to the residual stream x."""
    return functools.partial(registry.function_of(__name__, residual.kind, "residual"), residual=residual)


@registry.kind("none")
def replace_stream(x: Tensor, output: Tensor, residual: NoResidual) -> Tensor:
    """f(x): without a residual connection the sub-layer's output is the stream."""
    return output


@registry.kind("plain")
def add_output(x: Tensor, output: Tensor, residual: PlainResidual) -> Tensor:
    """x + f(x)."""
    return x + output


@registry.kind("scaled")
def add_scaled_output(x: Tensor, output: Tensor, residual: ScaledResidual) -> Tensor:
    """x + α f(x)."""
    return torch.add(x, output, alpha=residual.alpha)
