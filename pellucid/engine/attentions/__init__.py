"""Attention from q, k and v, and the inputs of every layer, to z: one file for each form of it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import ModelConfig
from pellucid.engine.layer_cache import CachePlan, LayerCache
from pellucid.engine.positions import Rotation


class AttentionInputs(NamedTuple):
    """Computed once for each forward pass, and the same in every layer.

    `rotation` rotates queries and keys (RoPE). `bias` [H T S] or [B H T S] is added to the scores. `mask`
    [B 1 T S] is true where a query may attend to a key; None if all may, or if `is_causal` asks the kernel
    for its own causal mask. `is_token` [B S] is false for padding. `is_packed` says that `mask` separates the
    documents of a row, which are the `segments` of a forward pass. `segments` here are the new tokens of
    several caches: attention is computed one `Segment` at a time, each with its own inputs.
    """

    rotation: Rotation | None
    bias: Tensor | None
    mask: Tensor | None
    is_causal: bool = False
    is_token: Tensor | None = None
    plan: CachePlan | None = None
    is_packed: bool = False
    segments: "tuple[Segment, ...]" = ()


class Segment(NamedTuple):
    """The new tokens of one cache, in a call that reads those of several (`forward_packed`): `span` are their
    places in the call, `layers` that cache, `inputs` those of a call that reads them alone, except the
    rotation."""

    span: slice
    layers: list[LayerCache]
    inputs: AttentionInputs


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
