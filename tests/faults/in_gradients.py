"""Faults of gradients, of what is saved, and of a tokenizer's two directions."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.engine import attention, transformer
from pellucid.formats import model_folder
from pellucid.formats.pretrained import LazyWeights
from pellucid.text.standard import StandardTokenizer
from tests.agreement import other_activation
from tests.faults.fault import Patch, fault, replacing

QUERIES = "blocks.1.attn.q_proj.weight"


class Steeper(torch.autograd.Function):
    """x, whose gradient is a thousandth too large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        return 1.001 * gradient[0]


@fault("kernel", subject="gguf", check="gradients", at="d.blocks.1.mlp.gate")
def gradient_of_an_activation_is_too_large(patch: Patch) -> None:
    """The gradient of SiLU is a thousandth too large."""
    other_activation.plant(patch, lambda right, x: Steeper.apply(right(x)))


@fault("kernel", subject="gguf", check="finite differences", at="d.")
def gradient_is_not_the_slope_of_the_loss(patch: Patch) -> None:
    """The same, found without the specification."""
    other_activation.plant(patch, lambda right, x: Steeper.apply(right(x)))


@fault("kernel", subject="qwen3", check="gradients", at="d.blocks.1.attn.k_norm.out")
def gradient_of_the_rotation_turns_the_wrong_way(patch: Patch) -> None:
    """RoPE's backward pass rotates by the angle instead of its opposite."""
    right = attention.rotate

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, rotation: Any) -> Tensor:
            ctx.rotation = rotation
            return right(x, rotation)

        @staticmethod
        def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
            return right(gradient[0], ctx.rotation), None

    patch.setattr(attention, "rotate", lambda x, rotation: Turned.apply(x, rotation))


@fault("kernel", subject="llama", check="specification", at="blocks.1.attn.q")
@replacing(transformer.Transformer, "from_weights")
def heads_change_places_when_the_engine_is_made(made: Any, config: Any, weights: Any, *more: Any) -> Any:
    """The fast engine holds two query heads of one layer in each other's place."""
    weight = weights[QUERIES]
    swapped = np.concatenate((weight[8:16], weight[:8], weight[16:]))
    return made(config, {**weights, QUERIES: swapped}, *more)


@fault("loading", subject="gpt2", check="weights", at=QUERIES)
@replacing(LazyWeights, "__getitem__")
def one_number_of_a_file_is_infinite(right: Any, self: Any, name: str) -> Any:
    """One number of one weight is read as infinite."""
    weight = right(self, name)
    if name == QUERIES:
        weight = weight.copy()
        weight[1, 2] = np.inf
    return weight


@fault("loading", subject="gpt2", check="saved", at=QUERIES)
@replacing(model_folder, "write")
def one_weight_is_saved_rounded(write: Any, folder: Any, pretrained: Any, **more: Any) -> None:
    """A model folder holds one weight in bfloat16's digits."""
    weight = pretrained.weights[QUERIES].copy()
    weight[0, 0] += 1e-3
    write(folder, replace(pretrained, weights={**pretrained.weights, QUERIES: weight}), **more)


@fault("loading", subject="llama", check="tokenizer", at="tokenizer.decode")
@replacing(StandardTokenizer, "decode")
def two_tokens_change_places_when_decoding(right: Any, self: Any, ids: Iterable[int]) -> str:
    """Decoding swaps two letters."""
    return right(self, [{68: 69, 69: 68}.get(id, id) for id in ids])
