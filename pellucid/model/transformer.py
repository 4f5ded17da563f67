"""The transformer, from token ids to logits, as fast as PyTorch goes.

The specification (`reference/transformer.py`) says what is computed; this file has its names, its order and
its shapes. Fused kernels do the work when nobody watches; under a recording every named value exists.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pellucid.config import ModelConfig
from pellucid.errors import TokenError, UsageError
from pellucid.model import caps, norms
from pellucid.model.attention import AttentionInputs
from pellucid.model.attentions.softmax import softmax
from pellucid.model.block import Block
from pellucid.model.cache import Cache
from pellucid.model.dropout import Dropout
from pellucid.model.initializations import initialise
from pellucid.model.linear import Embedding, linear
from pellucid.model.positions import PositionBias, Positions
from pellucid.model.tables import Tables
from pellucid.model.taps import begin_call, current_watcher, is_explicit, recompute_contexts, tap

Weights = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


class Transformer(nn.Module):
    """Every config's model. Its parameters are the config's, under the same names.

    They come initialized as GPT-2's, from torch's generator: `torch.manual_seed(0)` before it makes the same
    model again. On the device "meta" they hold nothing. Dropout begins with `.train()`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = False
        shapes = config.parameters()
        self.embed = Embedding(shapes, "embed")
        self.positions = Positions(config)
        self.position_bias = PositionBias(config)
        self.drop = Dropout("positioned", config.dropout.rates.get("embedding", 0.0))
        self.embed_norm = (
            norms.make(shapes, "embed_norm", config.embed_norm) if not config.embed_norm.is_none else None
        )
        self.blocks = nn.ModuleList(
            Block(shapes, f"blocks.{layer}", config) for layer in range(config.n_layer)
        )
        self.final_norm = norms.make(shapes, "final_norm", config.norm) if config.placement.final else None
        self.unembed = Unembedding(shapes.get("unembed.weight"), shapes.get("unembed.bias"))
        self.cap = caps.make(config.logit_cap)
        self.eval()
        if not self.embed.weight.is_meta:
            initialise(self, seed=None)

    @classmethod
    def from_weights(
        cls, config: ModelConfig, weights: Weights, device: Any = "cpu", dtype: torch.dtype = torch.float32
    ) -> Self:
        """A model with these weights. It is planned without memory, then filled one parameter at a time."""
        with torch.device("meta"):
            model = cls(config)
        shapes = config.parameters()
        if strange := [name for name in weights if name not in shapes]:
            raise UsageError(f"this config has no weight {strange[0]!r}.")
        for name, shape in shapes.items():
            filled = torch.empty(shape, dtype=dtype, device=device)
            filled.copy_(_read(weights, name, shape))
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, nn.Parameter(filled))
        for module in model.modules():
            if isinstance(module, Tables):
                module.make_tables(device)
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
        segments: Tensor | None = None,
    ) -> Tensor:
        """Logits [B T V] of the ids [B T].

        `padding` [B T] is true for a real token; `positions` [B T] says where each stands, by default its
        column. `segments` [B T] numbers the documents of packed rows: a document is a run of equal numbers,
        sees only itself, and its positions count from 0, so that it computes what it computes alone. With a
        `cache` the ids continue what it holds (see `forward_cached`).
        """
        x = self.hidden_states(ids, cache=cache, padding=padding, positions=positions, segments=segments)
        return self.logits(x)

    def hidden_states(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """The final stream [B T C], normed: all but the unembedding."""
        watcher = begin_call(self)
        x, inputs = self._enter(ids, cache, padding, positions, segments)
        for i, block in enumerate(self.blocks):
            layer = cache.layers[i] if cache else None
            if self.checkpointing and torch.is_grad_enabled() and watcher is None:
                x = _checkpoint(block, x, inputs, layer)
            else:
                x = block(x, inputs, layer)
        return x if self.final_norm is None else self.final_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """One score per token, from the final stream."""
        tied = self.embed.weight if self.unembed.weight is None else self.unembed.weight
        logits = linear(x, tied, self.unembed.bias)
        if self.cap is not None:
            logits = self.cap(tap("unembedded", logits))
        logits = tap("logits", logits)
        if current_watcher() is not None:
            tap("probs", softmax(logits))
        return logits

    def forward_cached(
        self, ids: Tensor, cache: Cache, lengths: list[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Appends the tokens to the cache (prefill, or one decode step) and returns their logits [B T V].

        `lengths` says how many of each row's tokens count, where rows differ; the rest is padding on the
        right. With `last_only` the logits are those of each row's last token, [B 1 V].
        """
        cache.reserve(ids.shape[1], lengths)
        x = self.hidden_states(ids, cache=cache)
        cache.advance(ids.shape[1] if lengths is None else lengths)
        if last_only and lengths is None:
            x = x[:, -1:]
        elif last_only and lengths is not None:
            x = x[torch.arange(len(x), device=x.device), torch.tensor(lengths, device=x.device) - 1][:, None]
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
        self,
        ids: Tensor,
        cache: Cache | None,
        padding: Tensor | None,
        positions: Tensor | None,
        segments: Tensor | None,
    ) -> tuple[Tensor, AttentionInputs]:
        """The stream entering the first block, and what attention needs to know about places."""
        if segments is not None:
            if cache is not None or positions is not None:
                raise UsageError(
                    "segments cannot be given with a cache, which continues one sequence, nor with "
                    "positions, which they decide."
                )
            if segments.shape != ids.shape:
                raise UsageError(
                    f"segments {tuple(segments.shape)} must have the shape of ids, {tuple(ids.shape)}."
                )
            segments, positions = split_segments(segments)
        if cache is not None and positions is not None:
            raise UsageError("with a cache, the positions follow what it holds: give none.")
        if cache is not None and padding is not None:
            raise UsageError(
                "with a cache, padding stands on the right: give `forward_cached` the counts of real tokens."
            )
        plan = None if cache is None else cache.plan(ids.shape[1])
        queries = torch.arange(ids.shape[1], device=ids.device) if plan is None else plan.queries
        if plan is None and positions is not None:
            queries = positions
        keys = queries if plan is None else plan.keys
        x = self.drop(self.positions.added(tap("embedded", self.embed(ids)), queries))
        x = x if self.embed_norm is None else self.embed_norm(x)
        rotation = self.positions.rotation(queries, x.dtype)
        bias = self.position_bias(queries, keys, x.dtype)
        real = None if padding is None else padding.bool()
        if plan is not None and self.config.mask.bidirectional_prefix and plan.real is not None:
            end = plan.queries[:, :1] + plan.real.sum(-1, keepdim=True)  # later keys only fill up a row
            real = plan.keys < end
        plain = cache.exact if cache is not None else positions is None
        plain &= bias is None and self.config.score_cap.is_none  # a kernel takes either the flag or these
        seen, causal = self._seen(queries, keys, real, plain, segments)
        return x, AttentionInputs(rotation, bias, seen, causal, real, plan, segments is not None)

    def _seen(
        self, queries: Tensor, keys: Tensor, real: Tensor | None, plain: bool, segments: Tensor | None
    ) -> tuple[Tensor | None, bool]:
        """The mask [B 1 T S] for these positions, or None and whether the kernel's own causal one is meant.

        `plain` says that the keys are all positions up to the last query's, and that a kernel does the rest.
        """
        count = queries.shape[-1]
        if self.config.mask.causal and plain and real is None and not is_explicit():
            if count == 1:
                return None, False  # the newest position sees everything
            if count == keys.shape[-1]:
                return None, True
        seen: Tensor | None = self.config.mask.allowed(queries, keys)
        if segments is not None:
            same = segments[:, :, None] == segments[:, None, :]
            seen = same if seen is None else seen & same
        if real is not None:
            among = real[:, None, :]
            seen = among.expand(-1, count, -1) if seen is None else seen & among
        if seen is None:
            return None, False
        seen = seen[None, None] if seen.ndim == 2 else seen[:, None]
        return tap("mask", seen), False


def split_segments(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the number of each token's segment in its row, and its position in the segment, [B T] each; a
    segment is a run of equal numbers."""
    column = torch.arange(segments.shape[1], device=segments.device)
    begins = torch.cat((segments[:, :1] == segments[:, :1], segments[:, 1:] != segments[:, :-1]), 1)
    starts = torch.where(begins, column, 0).cummax(1).values
    return begins.cumsum(1), column - starts


class Unembedding(nn.Module):
    """W_U and its bias; where the unembedding is tied, the weight is the embedding's."""

    def __init__(self, weight: tuple[int, ...] | None, bias: tuple[int, ...] | None) -> None:
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(torch.empty(weight))
        self.bias = None if bias is None else nn.Parameter(torch.empty(bias))


def _checkpoint(block: nn.Module, *inputs: Any) -> Tensor:
    """Runs a block without keeping its activations: the backward pass computes them again."""
    if torch.compiler.is_dynamo_compiling():  # the compiler takes no context managers
        return cast(Tensor, checkpoint(block, *inputs, use_reentrant=False))
    return cast(Tensor, checkpoint(block, *inputs, use_reentrant=False, context_fn=recompute_contexts))


def _read(weights: Weights, name: str, shape: tuple[int, ...]) -> Tensor:
    """One weight, if it is there and fits; nobody holds it once it is copied."""
    if name not in weights:
        raise UsageError(f"the weight {name!r} {shape} is missing.")
    array = weights[name]
    if np.shape(array) != shape:
        raise UsageError(f"the weight {name!r} has the shape {np.shape(array)}, not {shape}.")
    return torch.from_numpy(np.require(array, requirements=("C", "W")))
