"""The feed-forward, one file per form of `parts/mlps/`; each has a module `Mlp(shapes, path, mlp)`."""

import importlib

from torch import nn

from pellucid.config import Shapes
from pellucid.parts.mlps import Mlp


def make(shapes: Shapes, path: str, mlp: Mlp) -> nn.Module | None:
    """The module, or None where the block has no feed-forward."""
    if not mlp.values:
        return None
    module: nn.Module = importlib.import_module(f"{__name__}.{mlp.form}").Mlp(shapes, path, mlp)
    return module
