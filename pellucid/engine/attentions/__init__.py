"""Attention from q, k and v to z, one file for each form of `parts/attentions/`."""

from typing import Any

import torch
from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import ModelConfig
from pellucid.engine.attention_inputs import AttentionInputs
from pellucid.engine.layer_cache import LayerCache


class HeadAttention(nn.Module):
    """Computes z [B H T D] from q [B H T D], k and v [B K T D]; query head h reads key head ⌊h K / H⌋."""

    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__()

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def make_cache(
        config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any
    ) -> LayerCache:
        """Returns what one layer keeps of the tokens so far, empty."""
        raise NotImplementedError


def make(config: ModelConfig, path: str) -> HeadAttention:
    """Returns the attention of the config, whose values have names under `path`."""
    return find(config)(config, path)


def find(config: ModelConfig) -> type[HeadAttention]:
    """Returns the class of the config's attention."""
    return registry.class_of(__name__, config.attention.form, "attention form", HeadAttention)
