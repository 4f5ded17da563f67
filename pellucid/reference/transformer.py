"""The transformer, from token ids to logits: the definition of what both engines compute.

    x = E[ids] (+ position embeddings)
    x = x + Attention(Norm(x));  x = x + MLP(Norm(x))        in every block
    logits = Norm(x) W_U

A call `tape("name", op, *inputs)` runs one operation and keeps its result under that name: every name
given to it, or to a helper that calls it, is one of the glossary (`base/names.py`), which has its axes and
meaning.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.base import registry
from pellucid.base.arguments import count_ids
from pellucid.base.errors import TapeError
from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.parts.residuals import ResidualConfig, ScaledResidual
from pellucid.reference.attention import attention
from pellucid.reference.attentions import AttentionRefs, Past
from pellucid.reference.layers import KeepMasks, apply_cap, apply_dropout
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.norms import normalize
from pellucid.reference.op import Array, Ref, Shape
from pellucid.reference.ops.arithmetic import add, scaled_sum
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import take
from pellucid.reference.ops.masks import same_segment
from pellucid.reference.ops.softmax import softmax
from pellucid.reference.tape import Tape, TapeScope


def transformer(
    tape: Tape,
    config: ModelConfig,
    ids: Any,
    *,
    past: Past | None = None,
    padding: Any = None,
    segments: Any = None,
    dropout: KeepMasks | None = None,
    by_head: bool = False,
) -> Ref:
    """Returns the logits [B T V] of the ids [B T]; the parameters are already on the tape.

    `past` is the KV cache of the tokens before; `padding` [B S] is true (1) for a token and false for padding
    (PyTorch's key_padding_mask is the opposite); `segments` [B T] numbers the documents of a packed row: a
    document is a run of equal numbers, attends only to itself, and its positions count from 0; `dropout`
    holds the mask of each value X with dropout, under the name X.keep; `by_head` computes attn_out as the sum
    of `attn.head_out` over the heads.
    """
    start = past["blocks.0.attn.past_k"].shape[2] if past else 0
    ids = tape.constant("ids", _check_ids(config, ids, start))
    positions = np.arange(start, start + ids.shape[1])
    if segments is not None:
        positions = read_segments(tape, segments, ids.shape, past)
    x = embed(tape, config, ids, positions, dropout)
    inputs = attention_inputs(tape, config, positions, ids.shape[0], padding)
    for layer in range(config.n_layer):
        x = block(tape.scope(f"blocks.{layer}"), config, x, inputs, past, dropout, by_head)
    if config.placement.final:
        x = normalize(tape.scope("final_norm"), x, config.norm)
    return unembed(tape, config, x)


def embed(tape: Tape, config: ModelConfig, ids: Ref, positions: Array, dropout: KeepMasks | None) -> Ref:
    """Returns token embeddings [B T C], plus position embeddings where the kind of positions has them."""
    x = tape("embedded", take, tape.ref("embed.weight"), ids)
    fixed, learned = config.positions.rows(positions, config.d_model), config.positions.row_ids(positions)
    if fixed is not None:
        rows = describe_per_row(tape, tape.constant("position_rows", fixed), "b t c")
        x = tape("positioned", add, x, rows)
    elif learned is not None:
        ids = describe_per_row(tape, tape.constant("position_ids", learned), "b t")
        rows = tape("position_rows", take, tape.ref("positions.weight"), ids)
        x = tape("positioned", add, x, describe_per_row(tape, rows, "b t c"))
    else:
        tape.alias("positioned", x)
    x = apply_dropout(tape, "positioned", x, dropout)
    return normalize(tape.scope("embed_norm"), x, config.embed_norm) if not config.embed_norm.is_none else x


def read_segments(tape: Tape, segments: Any, shape: Shape, past: Past | None) -> Array:
    """Adds the segments [B T], numbered from 0 in each row, and returns the position of each token in its
    segment [B T]."""
    given = np.asarray(segments)
    if past:
        raise TapeError("a cache continues one sequence: segments cannot be given with it.")
    if given.shape != shape or given.dtype.kind not in "iu":
        raise TapeError(f"segments must be integers of shape {shape}; got {given.dtype} {given.shape}.")
    begins = np.diff(given, axis=1, prepend=given[:, :1] - 1) != 0
    tape.constant("segments", np.cumsum(begins, axis=1) - 1.0)
    column = np.arange(shape[1])
    return column - np.maximum.accumulate(np.where(begins, column, 0), axis=1)


def attention_inputs(
    tape: Tape, config: ModelConfig, positions: Array, batch: int, padding: Any
) -> AttentionRefs:
    """Returns what all layers share: the RoPE angles [T pairs], the position bias [H T S] and the mask
    [B 1 T S]. In packed rows, where positions are [B T], angles and bias have the axis B as well."""
    keys = positions if positions.ndim > 1 else np.arange(positions[-1] + 1)
    count = (batch, keys.shape[-1])
    if padding is not None and np.shape(padding) != count:
        raise TapeError(f"padding {np.shape(padding)} must have the shape {count}.")
    rotation = config.positions.rotation(positions, config.d_head)
    angles = None
    if rotation:
        per_row = positions.ndim > 1
        angles = tape.constant("angles", rotation.angles[:, None] if per_row else rotation.angles)
        describe_per_row(tape, angles, "b 1 t pair")
    bias = position_bias(tape, config, positions[..., :, None] - keys[..., None, :])
    mask = make_mask(tape, config.mask.compute_mask(positions, keys), batch, padding)
    return AttentionRefs(angles, rotation.layout if rotation else "", bias, mask)


def make_mask(tape: Tape, allowed: Array | None, batch: int, padding: Any) -> Ref | None:
    """Returns the mask [B 1 T S], or None where every query attends to all keys: the product of the config's
    mask (`allowed`, [T S] or [B T S]), of `padding` [B S], and in packed rows of the segment mask."""
    same = None
    if "segments" in tape:
        segments = tape.ref("segments")
        same = tape("same_segment", same_segment, segments, segments)
        if allowed is None and padding is None:
            return tape.alias("mask", same)
    elif allowed is None and padding is None:
        return None
    mask = np.ones((batch, 1, tape.ref("ids").shape[1], 1))
    if allowed is not None:
        mask = mask * (allowed if allowed.ndim == 2 else allowed[:, None])
    if padding is not None:
        mask = mask * np.asarray(padding)[:, None, None, :]
    if same is None:
        return tape.constant("mask", mask)
    return tape("mask", einsum, tape.constant("position_mask", mask), same, spec="b1ts,b1ts->b1ts")


def position_bias(tape: Tape, config: ModelConfig, distances: Array) -> Ref | None:
    """Returns the bias [H T S] that is added to the scores of every layer, fixed (ALiBi) or learned (T5),
    from the distances [T S]; of packed rows [B H T S] from [B T S]. None where the positions have none."""
    fixed, learned = config.positions.bias(distances, config.n_head), config.positions.bias_ids(distances)
    per_row = distances.ndim > 2
    if fixed is not None:
        bias = tape.constant("position_bias", np.moveaxis(fixed, 0, -3))
    elif learned is not None:
        ids = describe_per_row(tape, tape.constant("bias_ids", learned), "b t s")
        rows = tape("bias_rows", take, tape.ref("position_bias.weight"), ids)
        describe_per_row(tape, rows, "b t s h")
        bias = tape("position_bias", einsum, rows, spec="btsh->bhts" if per_row else "tsh->hts")
    else:
        return None
    return describe_per_row(tape, bias, "b h t s")


def describe_per_row(tape: Tape, ref: Ref, axes: str) -> Ref:
    """Gives a value that all rows usually share the axes that it has in packed rows, with B first."""
    entry = describe(ref.name)
    if entry and len(ref.shape) != len(entry.axes):
        tape.about[ref.name] = replace(entry, axes=tuple(axes.split()))
    return ref


def block(
    t: TapeScope,
    config: ModelConfig,
    x: Ref,
    inputs: AttentionRefs,
    past: Past | None,
    dropout: KeepMasks | None,
    by_head: bool = False,
) -> Ref:
    """Returns X_post [B T C]: X_mid = X + Attention(Norm X), X_post = X_mid + MLP(Norm X_mid), with the norms
    where the config places them."""
    x = t.alias("resid_pre", x)
    normed = _normalize_at(t, config, "attn_norm", x)
    attn_out = attention(t, config, normed, inputs, past, dropout, by_head)
    x = _add_output(t, config, "attn", "resid_mid", x, attn_out, dropout)
    if config.mlp.is_none:
        return t.alias("resid_post", x)
    mlp_out = apply_mlp(t, _normalize_at(t, config, "mlp_norm", x), config.mlp, dropout)
    return _add_output(t, config, "mlp", "resid_post", x, mlp_out, dropout)


def _add_output(
    t: TapeScope, config: ModelConfig, sub_layer: str, name: str, x: Ref, out: Ref, dropout: KeepMasks | None
) -> Ref:
    """Returns the residual stream after a sub-layer, under `name`: x + out, with dropout and an output norm
    before the sum and a post-norm after it where the config has them."""
    out = _normalize_at(
        t, config, f"{sub_layer}_out_norm", apply_dropout(t, f"{sub_layer}_out", out, dropout)
    )
    if "post_norm" not in config.placement.places:
        return add_residual(t, name, x, out, config.residual)
    x = add_residual(t, f"{sub_layer}_sum", x, out, config.residual)
    return t.alias(name, _normalize_at(t, config, f"{sub_layer}_post_norm", x))


def add_residual(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns the stream after a sub-layer with output `update`, under `name`."""
    ref: Ref = registry.function_of(__name__, residual.kind, "residual")(t, name, x, update, residual)
    return ref


@registry.kind("none")
def _replace(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns f(X): no residual connection."""
    return t.alias(name, update)


@registry.kind("plain")
def _add(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns X + f(X)."""
    return t(name, add, x, update)


@registry.kind("scaled")
def _add_scaled(t: TapeScope, name: str, x: Ref, update: Ref, residual: ScaledResidual) -> Ref:
    """Returns X + α f(X)."""
    return t(name, scaled_sum, x, update, alpha=residual.alpha)


def _normalize_at(t: TapeScope, config: ModelConfig, name: str, x: Ref) -> Ref:
    """Returns x normalized where the config places a norm of this name, else x."""
    is_placed = name.partition("_")[2] in config.placement.places
    return normalize(t.scope(name), x, config.norm) if is_placed else x


def unembed(tape: Tape, config: ModelConfig, x: Ref) -> Ref:
    """Returns the logits [B T V] of x, and adds their softmax to the tape as `probs`."""
    logits = compute_logits(tape, config, x)
    tape("probs", softmax, logits)
    return logits


def compute_logits(tape: Tape, config: ModelConfig, x: Ref) -> Ref:
    """Returns the logits [B T V] = x W_U (+ b), soft-capped where the config says so."""
    bias = [tape.ref("unembed.bias")] if "unembed.bias" in tape else []
    spec = "btc,vc+v->btv" if bias else "btc,vc->btv"
    name = "logits" if config.logit_cap.is_none else "unembedded"
    logits = tape(name, einsum, x, tape.ref(config.unembedding.weight), *bias, spec=spec)
    return apply_cap(tape, "logits", logits, config.logit_cap)


def cache(tape: Tape, config: ModelConfig) -> dict[str, Array]:
    """Returns the KV cache [B K S D] of every layer, which the next call reads as `past`: keys after RoPE."""
    past = {}
    for layer in range(config.n_layer):
        t = tape.scope(f"blocks.{layer}.attn")
        keys = next(name for name in ("k_all", "k_rot", "k_normed", "k") if name in t)
        values = next(name for name in ("v_all", "v") if name in t)
        past[f"{t.prefix}.past_k"] = tape[t.ref(keys)]
        past[f"{t.prefix}.past_v"] = tape[t.ref(values)]
    return past


def _check_ids(config: ModelConfig, ids: Any, start: int) -> Array:
    """Returns the ids [B T] as an array; raises unless this model can read them."""
    if (length := start + count_ids(ids)) > config.context_length:  # before an array is made of them
        raise TapeError(f"{length:,} tokens do not fit the context of {config.context_length:,}.")
    array = np.asarray(ids)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "iu":
        raise TapeError(f"ids must be integers [B T], at least one; got {array.dtype} {array.shape}.")
    if array.min() < 0 or array.max() >= config.vocab_size:
        raise TapeError(f"ids must be 0 to {config.vocab_size - 1}; got {array.min()} to {array.max()}.")
    return array
