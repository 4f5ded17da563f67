"""The feed-forward, one file per form of `parts/mlps/`; each has a module `Mlp(shapes, path, mlp)`."""

import importlib
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Shapes
from pellucid.parts.mlps import Mlp

Curve = Callable[[Tensor], Tensor]

CURVES: dict[str, Curve] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
"""The activations, under the names of the specification's operations."""


def make(shapes: Shapes, path: str, mlp: Mlp) -> nn.Module | None:
    """The module, or None where the block has no feed-forward."""
    if not mlp.values:
        return None
    module: nn.Module = importlib.import_module(f"{__name__}.{mlp.form}").Mlp(shapes, path, mlp)
    return module
