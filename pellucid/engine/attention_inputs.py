"""Inputs of every attention layer beside the residual stream: rotation, bias, mask and cache plan."""

from typing import NamedTuple

from torch import Tensor

from pellucid.engine.layer_cache import CachePlan, LayerCache
from pellucid.engine.positions import Rotation


class AttentionInputs(NamedTuple):
    """Computed once for each forward pass, and the same in every layer.

    `rotation` rotates queries and keys (RoPE). `bias` [H T S] or [B H T S] is added to the scores. `mask`
    [B 1 T S] is true where a query may attend to a key; None if all may, or if `is_causal` asks the kernel
    for its own causal mask. `is_token` [B S] is false for padding. `is_packed` says that `mask` separates the
    documents of a row. With `segments`, attention is computed segment by segment, each with its own inputs.
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
    """Consecutive tokens of one row, in a call that reads several rows: `span` are their places in the call,
    `layers` the row's cache, `inputs` those of a call that reads them alone, except the rotation."""

    span: slice
    layers: list[LayerCache]
    inputs: AttentionInputs
