"""The feed-forward, one file per form of `parts/mlps/`; each has a module `Mlp(shapes, path, config)`."""

import importlib

from torch import nn

from pellucid.config import ModelConfig, Shapes


def make(shapes: Shapes, path: str, config: ModelConfig) -> nn.Module | None:
    """The module, or None where the block has no feed-forward."""
    if config.mlp.is_none:
        return None
    module: nn.Module = importlib.import_module(f"{__name__}.{config.mlp.form}").Mlp(shapes, path, config)
    return module
