"""What each position takes from the others, one file per form of `parts/attentions/`.

Each has a module `Mix(config, path)` that makes z [B H T D] of q, k and v, and what a cache keeps for it,
`layer(config, batch, slots, dtype, device)`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pellucid.config import ModelConfig

if TYPE_CHECKING:
    from pellucid.model.cache import LayerCache


def make(config: ModelConfig, path: str) -> nn.Module:
    module: nn.Module = _form(config).Mix(config, path)
    return module


def layer(config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any) -> "LayerCache":
    """What one layer keeps of the tokens read so far."""
    kept: LayerCache = _form(config).layer(config, batch, slots, dtype, device)
    return kept


def _form(config: ModelConfig) -> ModuleType:
    return importlib.import_module(f"{__name__}.{config.attention.form}")
