"""The transformer, from token ids to logits, as fast as PyTorch goes.

The specification (`reference/transformer.py`) says what is computed; this file has its names, its order and
its shapes. Fused kernels do the work when nobody watches; under a recording every named value exists.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pellucid.config import ModelConfig
from pellucid.errors import AskedWrongly, TokenError
from pellucid.model import norms
from pellucid.model.attention import Where, softmax
from pellucid.model.block import Block
from pellucid.model.cache import Cache
from pellucid.model.linear import Embedding, linear
from pellucid.model.positions import Positions
from pellucid.model.taps import explicit, tap, watch

Weights = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


class Transformer(nn.Module):
    """Every config's model. Its parameters are the config's, under the same names; they start empty."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = False
        shapes = config.parameters()
        self.embed = Embedding(shapes, "embed")
        self.positions = Positions(config)
        self.blocks = nn.ModuleList(
            Block(shapes, f"blocks.{layer}", config) for layer in range(config.n_layer)
        )
        self.final_norm = norms.make(shapes, "final_norm", config.norm)
        self.unembed = Unembedding(shapes.get("unembed.weight"), shapes.get("unembed.bias"))

    @classmethod
    def from_weights(
        cls, config: ModelConfig, weights: Weights, device: Any = "cpu", dtype: torch.dtype = torch.float32
    ) -> Self:
        """A model with these weights. It is planned without memory, then filled one parameter at a time."""
        with torch.device("meta"):
            model = cls(config)
        shapes = config.parameters()
        if strange := [name for name in weights if name not in shapes]:
            raise AskedWrongly(f"this config has no weight {strange[0]!r}.")
        for name, shape in shapes.items():
            filled = torch.empty(shape, dtype=dtype, device=device)
            filled.copy_(_read(weights, name, shape))
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, nn.Parameter(filled))
        model.positions.make_tables(device)
        return model

    @classmethod
    def empty(cls, config: ModelConfig, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        """A model whose parameters hold nothing yet, made in the place and type where it will live."""
        with torch.device("meta"):
            model = cls(config).to(dtype)
        return model.to_empty(device=device)

    def weights(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The parameters as the specification reads them: float64, under the same names."""
        return {name: value.detach().double().cpu().numpy() for name, value in self.named_parameters()}

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    def forward(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Logits [B T V] of the ids [B T].

        `padding` [B T] is true for a real token; `positions` [B T] says where each stands, by default its
        column. With a `cache` the ids continue what it holds (see `extend`).
        """
        return self.logits(self.stream(ids, cache=cache, padding=padding, positions=positions))

    def stream(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The final stream [B T C], normed: all but the unembedding."""
        if watching := watch():
            watching.begin()
        x, where = self._enter(ids, cache, padding, positions)
        for i, block in enumerate(self.blocks):
            layer = cache.layers[i] if cache else None
            if self.checkpointing and torch.is_grad_enabled() and not watching:
                x = checkpoint(block, x, where, layer, use_reentrant=False)
            else:
                x = block(x, where, layer)
        y: Tensor = self.final_norm(x)
        return y

    def logits(self, x: Tensor) -> Tensor:
        """One score per token, from the final stream."""
        tied = self.embed.weight if self.unembed.weight is None else self.unembed.weight
        logits = tap("logits", linear(x, tied, self.unembed.bias))
        if watch():
            tap("probs", softmax(logits))
        return logits

    def extend(
        self, ids: Tensor, cache: Cache, counts: list[int] | None = None, last: bool = False
    ) -> Tensor:
        """Read more tokens into the cache and return their logits, of the `last` position alone if asked.

        Rows may bring different numbers of tokens: row b's first `counts[b]` are real, the rest padding.
        """
        cache.reserve(ids.shape[1])
        x = self.stream(ids, cache=cache)
        cache.advance(ids.shape[1] if counts is None else counts)
        if last and counts is None:
            x = x[:, -1:]
        elif last and counts is not None:
            x = x[torch.arange(len(x), device=x.device), torch.tensor(counts, device=x.device) - 1][:, None]
        return self.logits(x)

    def check(self, ids: Tensor) -> None:
        """Refuse ids that this model cannot read, in words."""
        if ids.ndim != 2 or ids.numel() == 0 or ids.is_floating_point():
            raise TokenError(f"ids must be whole numbers [B T], at least one; got {tuple(ids.shape)}.")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.config.vocab_size:
            raise TokenError(f"ids go from 0 to {self.config.vocab_size - 1}; got {low} to {high}.")
        if ids.shape[1] > self.config.context_length:
            raise TokenError(
                f"{ids.shape[1]} tokens do not fit this model's context of {self.config.context_length}."
            )

    def _enter(
        self, ids: Tensor, cache: Cache | None, padding: Tensor | None, positions: Tensor | None
    ) -> tuple[Tensor, Where]:
        """The stream entering the first block, and what attention needs to know about places."""
        if cache is not None and padding is not None:
            raise AskedWrongly(
                "with a cache, padding stands on the right: give `extend` the counts of real tokens."
            )
        count = ids.shape[1]
        slots = torch.arange(count, device=ids.device) if cache is None else cache.slots(count)
        places = slots if positions is None else positions
        x = self.positions.added(tap("embedded", self.embed(ids)), places)
        turn = self.positions.turn(places, x.dtype)
        if cache is None:
            return x, Where(turn, *self._seen(slots, count, count, padding))
        past = cache.longest if cache.exact else None
        seen = self._seen(slots, cache.reach, None if past is None else past + count, None)
        return x, Where(turn, *seen, slots, cache.reach)

    def _seen(
        self, slots: Tensor, reach: int, end: int | None, padding: Tensor | None
    ) -> tuple[Tensor | None, bool]:
        """The mask [B 1 T S] for these slots, or None and whether the kernel's own causal one is meant.

        `end` is where the new tokens end, if the program knows it without asking the device.
        """
        count = slots.shape[-1]
        if self.config.mask.causal and padding is None and end == reach and not explicit():
            if count == 1:
                return None, False  # the newest position sees everything
            if count == reach:
                return None, True
        seen: Tensor | None = self.config.mask.allowed(slots, torch.arange(reach, device=slots.device))
        if padding is not None:
            real = padding.bool()[:, None, :]
            seen = real.expand(-1, count, -1) if seen is None else seen & real
        if seen is None:
            return None, False
        seen = seen[None, None] if seen.ndim == 2 else seen[:, None]
        return tap("mask", seen), False


class Unembedding(nn.Module):
    """W_U and its bias; where the unembedding is tied, the weight is the embedding's."""

    def __init__(self, weight: tuple[int, ...] | None, bias: tuple[int, ...] | None) -> None:
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(torch.empty(weight))
        self.bias = None if bias is None else nn.Parameter(torch.empty(bias))


def _read(weights: Weights, name: str, shape: tuple[int, ...]) -> Tensor:
    """One weight, if it is there and fits; nobody holds it once it is copied."""
    if name not in weights:
        raise AskedWrongly(f"the weight {name!r} {shape} is missing.")
    array = weights[name]
    if np.shape(array) != shape:
        raise AskedWrongly(f"the weight {name!r} has the shape {np.shape(array)}, not {shape}.")
    return torch.from_numpy(np.require(array, requirements=("C", "W")))
