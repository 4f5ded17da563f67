"""The transformer in PyTorch, from token ids to logits.

It computes what the specification (`reference/transformer.py`) defines, with the same names, order and
shapes. Fused kernels are used unless a recording (`engine/taps.py`) needs every named value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pellucid.base.errors import TokenError, UsageError
from pellucid.base.quantized import QuantizedWeight, is_quantizable
from pellucid.config import ModelConfig
from pellucid.engine import caps, norms
from pellucid.engine.attentions import AttentionInputs, Segment
from pellucid.engine.attentions.softmax import softmax
from pellucid.engine.block import Block
from pellucid.engine.cache import Cache
from pellucid.engine.dropout import Dropout
from pellucid.engine.initializations import initialize
from pellucid.engine.layer_cache import CachePlan
from pellucid.engine.linear import Embedding, linear, widen_weight
from pellucid.engine.positions import PositionBias, Positions
from pellucid.engine.precision import disable_reduced_precision_reduction, to_roundable
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.tables import Tables
from pellucid.engine.taps import begin_call, current_watcher, is_explicit, recompute_contexts, tap

Weights = Mapping[str, np.ndarray[Any, np.dtype[Any]] | QuantizedWeight]


class Transformer(nn.Module):
    """A decoder-only transformer; the config decides every size and choice.

    Its parameters have the names and shapes of `config.parameters()`. A new model has GPT-2's initialization,
    drawn from torch's default generator (`torch.manual_seed`), unless it is built on the device "meta". It is
    in evaluation mode; `.train()` turns dropout on.
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
            initialize(self, seed=None)

    @classmethod
    def from_weights(
        cls, config: ModelConfig, weights: Weights, device: Any = "cpu", dtype: torch.dtype = torch.float32
    ) -> Self:
        """Returns a model with these weights; a `QuantizedWeight` becomes a `QuantizedTensor`, and a
        `Parameter` of this type is shared.

        It is built on the device "meta" and filled one parameter at a time, so that at most one weight exists
        twice.
        """
        if torch.device(device).type == "cuda":
            disable_reduced_precision_reduction()
        with torch.device("meta"):
            model = cls(config)
        shapes = config.parameters()
        if unknown := [name for name in weights if name not in shapes]:
            raise UsageError(f"this config has no weight {unknown[0]!r}.")
        for name, shape in shapes.items():
            held = _load_weight(_read_weight(weights, name, shape), name, device, dtype)
            owner, _, last = name.rpartition(".")
            if isinstance(held, QuantizedTensor):  # a module cannot replace a parameter
                delattr(model.get_submodule(owner), last)
            setattr(model.get_submodule(owner), last, held)
        for module in model.modules():
            if isinstance(module, Tables):
                module.make_tables(device)
        return model

    @classmethod
    def empty(cls, config: ModelConfig, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        """Returns a model with uninitialized parameters (`torch.empty`) on this device."""
        with torch.device("meta"):
            model = cls(config).to(dtype)
        return model.to_empty(device=device)

    def weights(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Returns the parameters as float64 arrays, by name, as the specification reads them; those of a
        quantized one are scale · integer (+ minimum), computed in float64."""
        held = dict(self.named_parameters()) | self.quantized_weights()
        return {name: widen_weight(weight).cpu().numpy() for name, weight in held.items()}

    def quantized_weights(self) -> dict[str, QuantizedTensor]:
        """Returns the quantized weights, by name."""
        return {name: module for name, module in self.named_modules() if isinstance(module, QuantizedTensor)}

    def train(self, mode: bool = True) -> Self:
        if mode and (quantized := self.quantized_weights()):
            raise UsageError(
                f"the weight {next(iter(quantized))} is quantized, and integers have no gradient, so this "
                "model cannot be trained: start from a model of floats."
            )
        return super().train(mode)

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        """The type of keys and values by default."""
        return self.dtype

    def forward(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits [B T V] of the token ids [B T].

        `padding` [B S], here S = T, is true for a token and false for padding, like Hugging Face's
        attention_mask (PyTorch's key_padding_mask is the opposite). `positions` [B T] are the position ids,
        by default 0, 1, …, T − 1. `segments` [B T] numbers the documents of packed rows: a document is a run
        of equal numbers, attends only to itself, and its positions start at 0, so that its logits are those
        of the document alone. With a `cache` the ids continue its tokens; `forward_cached` also updates its
        lengths.
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
        """Returns the last hidden states [B T C], after the final norm: the input of the unembedding."""
        watcher = begin_call(self)
        _check_options(ids, cache, padding, positions, segments)
        self.cover(_count_positions(ids.shape[1], cache, positions))
        if segments is not None:
            segments, positions = split_segments(segments)
        plan = None if cache is None else cache.plan(ids.shape[1])
        if plan is not None:
            queries, keys = plan.queries, plan.keys
        else:
            queries = torch.arange(ids.shape[1], device=ids.device) if positions is None else positions
            keys = queries
        x = self._embed(ids, queries)
        rotation = self.positions.rotation(queries, x.dtype)
        bias = self.position_bias(queries, keys, x.dtype)
        is_token = self._find_tokens(padding, plan)
        is_contiguous = positions is None if cache is None else cache.is_contiguous
        mask, is_causal = self._make_mask(queries, keys, is_token, segments, is_contiguous and bias is None)
        inputs = AttentionInputs(rotation, bias, mask, is_causal, is_token, plan, segments is not None)
        for i, block in enumerate(self.blocks):
            layer_cache = cache.layers[i] if cache else None
            if self.checkpointing and torch.is_grad_enabled() and watcher is None:
                x = _checkpoint(block, x, inputs, layer_cache)
            else:
                x = block(x, inputs, layer_cache)
        return x if self.final_norm is None else self.final_norm(x)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the input [B T C] of the first block."""
        x: Tensor = self.drop(self.positions.add_to(tap("embedded", self.embed(ids)), positions))
        return x if self.embed_norm is None else self.embed_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits [B T V] of the last hidden states [B T C]."""
        logits = linear(x, self.unembedding, self.unembed.bias)
        if self.cap is not None:
            logits = self.cap(tap("unembedded", logits))
        logits = tap("logits", logits)
        if current_watcher() is not None:
            tap("probs", softmax(logits))
        return logits

    @property
    def unembedding(self) -> nn.Parameter | QuantizedTensor:
        """The matrix of the logits [V C]: the unembedding's own, or the embedding to which it is tied."""
        return self.embed.weight if self.unembed.weight is None else self.unembed.weight

    def forward_cached(
        self, ids: Tensor, cache: Cache, lengths: list[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Appends the tokens to the cache (prefill, or one decode step) and returns their logits [B T V].

        `lengths` is the number of tokens in each row of ids, where rows differ; the rest of a row is padding
        on the right. With `last_only` only the logits of each row's last token are returned, [B 1 V].
        """
        cache.reserve(ids.shape[1], lengths)
        x = self.hidden_states(ids, cache=cache)
        cache.advance(ids.shape[1] if lengths is None else lengths)
        if last_only and lengths is None:
            x = x[:, -1:]
        elif last_only and lengths is not None:
            x = x[torch.arange(len(x), device=x.device), torch.tensor(lengths, device=x.device) - 1][:, None]
        return self.logits(x)

    def forward_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        """Appends tokens to several caches of one row each, in one call without padding, and returns the
        logits [N V] of the tokens at the places `wanted` of the concatenated ids. Packed here are texts with
        a cache each, of which a `Segment` is the new tokens; `segments` of `forward` are documents of a row.

        A cache may occur more than once, its tokens in order. What a row computes does not depend on the
        other rows: attention is computed row by row, everything else token by token.
        """
        begin_call(self)
        ids = torch.tensor([[id for _, some in rows for id in some]], device=self.device)
        segments, at = list[Segment](), 0
        for cache, some in rows:
            cache.reserve(len(some))
            self.cover(cache.visible_length)
            segments.append(self._make_segment(cache, slice(at, at + len(some))))
            cache.advance(len(some))
            at += len(some)
        plans = [segment.inputs.plan for segment in segments]
        positions = torch.cat([plan.queries.view(-1) for plan in plans if plan is not None])
        x = self._embed(ids, positions)
        rotation = self.positions.rotation(positions, x.dtype)
        inputs = AttentionInputs(rotation, None, None, segments=tuple(segments))
        for i, block in enumerate(self.blocks):
            x = block(x, inputs, [segment.layers[i] for segment in segments])
        if len(wanted) < at:
            x = x[:, torch.tensor(wanted, dtype=torch.int64, device=x.device)]
        return self.logits(x if self.final_norm is None else self.final_norm(x))[0]

    def _make_segment(self, cache: Cache, span: slice) -> Segment:
        """Returns the segment of the next tokens of a cache, which has reserved them."""
        plan = cache.plan(span.stop - span.start)
        bias = self.position_bias(plan.queries, plan.keys, self.dtype)
        is_token = self._find_tokens(None, plan)
        allows_kernel = cache.is_contiguous and bias is None
        mask, is_causal = self._make_mask(plan.queries, plan.keys, is_token, None, allows_kernel)
        return Segment(span, cache.layers, AttentionInputs(None, bias, mask, is_causal, is_token, plan))

    def check_ids(self, ids: Tensor) -> None:
        """Raises a TokenError unless ids are integers [B T] of the vocabulary that fit the context."""
        if ids.ndim != 2 or ids.numel() == 0 or ids.is_floating_point():
            raise TokenError(f"ids must be integers [B T], at least one; got the shape {tuple(ids.shape)}.")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.config.vocab_size:
            wrong = low if low < 0 else high
            raise TokenError(f"ids go from 0 to {self.config.vocab_size - 1:,}; got {wrong:,}.")
        if ids.shape[1] > self.config.context_length:
            raise TokenError(
                f"{ids.shape[1]} tokens do not fit this model's context of {self.config.context_length}."
            )

    def cover(self, count: int) -> None:
        """Makes the tables of positions reach to the first `count` positions at least, as a forward pass does
        itself; for code that is compiled or recorded with the tables as they are."""
        self.positions.cover(count)
        self.position_bias.cover(count)

    def _find_tokens(self, padding: Tensor | None, plan: CachePlan | None) -> Tensor | None:
        """Returns which keys [B S] are tokens rather than padding; None if the mask need not hide padding.

        In a cache padding comes after a row's tokens, where only a bidirectional mask would show it.
        """
        if plan is not None and self.config.mask.bidirectional_prefix and plan.is_token is not None:
            end = plan.queries[:, :1] + plan.is_token.sum(-1, keepdim=True)
            return plan.keys < end
        return None if padding is None else padding.bool()

    def _make_mask(
        self,
        queries: Tensor,
        keys: Tensor,
        is_token: Tensor | None,
        segments: Tensor | None,
        allows_kernel: bool,
    ) -> tuple[Tensor | None, bool]:
        """Returns the mask [B 1 T S], true where a query may attend to a key, and False; or None and whether
        the attention kernel applies its own causal mask.

        `allows_kernel` says that the keys are all positions up to the last query, and that no bias is added,
        which a kernel takes only in place of its causal mask.
        """
        count = queries.shape[-1]
        allows_kernel = allows_kernel and self.config.score_cap.is_none and is_token is None
        if self.config.mask.causal and allows_kernel and not is_explicit():
            if count == 1:
                return None, False  # the newest position attends to every key
            if count == keys.shape[-1]:
                return None, True
        mask: Tensor | None = self.config.mask.compute_mask(queries, keys)
        if segments is not None:
            same_segment = segments[:, :, None] == segments[:, None, :]
            mask = same_segment if mask is None else mask & same_segment
        if is_token is not None:
            is_key = is_token[:, None, :]
            mask = is_key.expand(-1, count, -1) if mask is None else mask & is_key
        if mask is None:
            return None, False
        mask = mask[None, None] if mask.ndim == 2 else mask[:, None]
        return tap("mask", mask), False


def _count_positions(count: int, cache: Cache | None, positions: Tensor | None) -> int:
    """Returns how many first positions hold those of a call of `count` tokens in each row, with padding."""
    if torch.compiler.is_compiling():  # compiled code reads no lengths: its caller covers what it needs
        return count if cache is None else cache.visible_length
    if cache is not None:
        return max(cache.visible_length, cache.longest + count)
    return count if positions is None else int(positions.max()) + 1


def split_segments(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the number of each token's segment in its row, and its position in the segment, [B T] each; a
    segment is a run of equal numbers."""
    column = torch.arange(segments.shape[1], device=segments.device)
    # the first token of a row begins a segment: x == x is true, in the shape and on the device of the rest
    is_first = torch.cat((segments[:, :1] == segments[:, :1], segments[:, 1:] != segments[:, :-1]), 1)
    starts = torch.where(is_first, column, 0).cummax(1).values
    return is_first.cumsum(1), column - starts


class Unembedding(nn.Module):
    """The unembedding matrix W_U and its bias; the weight is None if it is tied to the embedding."""

    def __init__(self, weight: tuple[int, ...] | None, bias: tuple[int, ...] | None) -> None:
        super().__init__()
        self.weight: nn.Parameter | QuantizedTensor | None
        self.weight = None if weight is None else nn.Parameter(torch.empty(weight))
        self.bias = None if bias is None else nn.Parameter(torch.empty(bias))


def _check_options(
    ids: Tensor,
    cache: Cache | None,
    padding: Tensor | None,
    positions: Tensor | None,
    segments: Tensor | None,
) -> None:
    """Raises a UsageError for arguments of a forward pass that contradict each other."""
    if segments is not None:
        if cache is not None or positions is not None:
            raise UsageError(
                "segments cannot be given with a cache, which continues one sequence, nor with "
                "positions, which they determine."
            )
        if segments.shape != ids.shape:
            raise UsageError(
                f"segments {tuple(segments.shape)} must have the shape of ids, {tuple(ids.shape)}."
            )
    if cache is not None and positions is not None:
        raise UsageError("positions cannot be given with a cache, whose lengths determine them: omit them.")
    if cache is not None and padding is not None:
        raise UsageError(
            "padding cannot be given with a cache, where it must be on the right: give `forward_cached` the "
            "lengths of the rows."
        )


def _checkpoint(block: nn.Module, *inputs: Any) -> Tensor:
    """Runs a block with activation checkpointing: the backward pass computes its activations again."""
    if torch.compiler.is_dynamo_compiling():  # the compiler accepts no context_fn
        return cast(Tensor, checkpoint(block, *inputs, use_reentrant=False))
    return cast(Tensor, checkpoint(block, *inputs, use_reentrant=False, context_fn=recompute_contexts))


def _read_weight(weights: Weights, name: str, shape: tuple[int, ...]) -> Any:
    """Returns one weight, after checking its shape; the mapping may read it from a file."""
    if name not in weights:
        raise UsageError(f"the weight {name!r} {shape} is missing.")
    array = weights[name]
    if np.shape(array) != shape:
        raise UsageError(f"the weight {name!r} has the shape {np.shape(array)}, not {shape}.")
    return array


def _load_weight(weight: Any, name: str, device: Any, dtype: torch.dtype) -> nn.Parameter | QuantizedTensor:
    """Returns a copy of a weight as a module holds it, or the parameter that another module holds."""
    if isinstance(weight, nn.Parameter):
        return weight
    if isinstance(weight, QuantizedWeight) and is_quantizable(name, weight.shape):
        return QuantizedTensor.from_weight(weight, device, dtype)
    parameter = torch.empty(weight.shape, dtype=dtype, device=device)
    parameter.copy_(to_roundable(weight, dtype))
    return nn.Parameter(parameter)
