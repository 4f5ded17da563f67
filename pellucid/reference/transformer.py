"""The transformer, from token ids to logits: the definition of what the product computes.

Read it beside the glossary (`names.py`): every first argument below is a name in it.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import TapeError
from pellucid.names import describe
from pellucid.reference.attention import AttentionRefs, Past, attention
from pellucid.reference.caps import apply_cap
from pellucid.reference.dropout import KeepMasks, apply_dropout
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.norms import normalize
from pellucid.reference.op import Array, Ref, Shape
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import take
from pellucid.reference.ops.masks import same_segment
from pellucid.reference.ops.softmax import softmax
from pellucid.reference.residuals import add_residual
from pellucid.reference.tape import Scope, Tape


def transformer(
    tape: Tape,
    config: ModelConfig,
    ids: Any,
    *,
    past: Past | None = None,
    padding: Any = None,
    segments: Any = None,
    dropout: KeepMasks | None = None,
) -> Ref:
    """Logits [B T V] of the ids [B T]; the parameters are already on the tape.

    `past` is the cache of the tokens before; `padding` [B S] is 1 for a real token, 0 for padding; `segments`
    [B T] numbers the documents of a packed row: a document is a run of equal numbers, sees only itself, and
    its positions count from 0; `dropout` holds what each value X that is dropped out is multiplied with,
    under the name X.keep.
    """
    start = past["blocks.0.attn.past_k"].shape[2] if past else 0
    ids = tape.constant("ids", _checked(config, ids, start))
    positions = np.arange(start, start + ids.shape[1])
    if segments is not None:
        positions = read_segments(tape, segments, ids.shape, past)
    x = embed(tape, config, ids, positions, dropout)
    inputs = attention_inputs(tape, config, positions, ids.shape[0], padding)
    for layer in range(config.n_layer):
        x = block(tape.scope(f"blocks.{layer}"), config, x, inputs, past, dropout)
    if config.placement.final:
        x = normalize(tape.scope("final_norm"), x, config.norm)
    return unembed(tape, config, x)


def embed(tape: Tape, config: ModelConfig, ids: Ref, positions: Array, dropout: KeepMasks | None) -> Ref:
    """Each token's row of the embedding, plus its position's row where the positions have rows."""
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
    """Puts the segments [B T] on the tape, numbered from 0 in each row, and returns the position of each
    token in its segment."""
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
    """The angles of the positions [T] or, of packed rows, [B T], the bias [H T S] or [B H T S] of their
    distances, and the mask [B 1 T S]: the config's, less what is padding or of another segment."""
    keys = positions if positions.ndim > 1 else np.arange(positions[-1] + 1)
    count = (batch, keys.shape[-1])
    if padding is not None and np.shape(padding) != count:
        raise TapeError(f"padding {np.shape(padding)} must have one for each place, {count}.")
    rotation = config.positions.rotation(positions, config.d_head)
    angles = None
    if rotation:
        per_row = positions.ndim > 1
        angles = tape.constant("angles", rotation.angles[:, None] if per_row else rotation.angles)
        describe_per_row(tape, angles, "b 1 t pair")
    bias = position_bias(tape, config, positions[..., :, None] - keys[..., None, :])
    allowed = make_mask(tape, config.mask.compute_mask(positions, keys), batch, padding)
    return AttentionRefs(angles, rotation.layout if rotation else "", bias, allowed)


def make_mask(tape: Tape, allowed: Array | None, batch: int, padding: Any) -> Ref | None:
    """Returns the mask [B 1 T S], or None where every position sees all: the product of the config's mask
    (`allowed`, [T S] or [B T S]), of `padding`, and in packed rows of the segment mask."""
    same = None
    if "segments" in tape:
        segments = tape.ref("segments")
        same = tape("same_segment", same_segment, segments, segments)
        if allowed is None and padding is None:
            return tape.alias("mask", same)
    elif allowed is None and padding is None:
        return None
    seen = np.ones((batch, 1, tape.ref("ids").shape[1], 1))
    if allowed is not None:
        seen = seen * (allowed if allowed.ndim == 2 else allowed[:, None])
    if padding is not None:
        seen = seen * np.asarray(padding)[:, None, None, :]
    if same is None:
        return tape.constant("mask", seen)
    return tape("mask", einsum, tape.constant("position_mask", seen), same, spec="b1ts,b1ts->b1ts")


def position_bias(tape: Tape, config: ModelConfig, distances: Array) -> Ref | None:
    """What the positions add to the scores, the same in every layer: a fixed table, or looked-up rows. For
    distances [T S] it is [H T S], for those of packed rows [B T S] it is [B H T S]."""
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
    """Gives a value that is usually one for all rows the axes that it has in packed rows."""
    entry = describe(ref.name)
    if entry and len(ref.shape) != len(entry.axes):
        tape.about[ref.name] = replace(entry, axes=tuple(axes.split()))
    return ref


def block(
    t: Scope, config: ModelConfig, x: Ref, inputs: AttentionRefs, past: Past | None, dropout: KeepMasks | None
) -> Ref:
    """X_mid = X + Attention(norm X);  X_post = X_mid + FeedForward(norm X_mid); the norms where the config
    places them."""
    x = t.alias("resid_pre", x)
    attended = attention(t, config, _placed(t, config, "attn_norm", x), inputs, past, dropout)
    x = _joined(t, config, "attn", "resid_mid", x, attended, dropout)
    if config.mlp.is_none:
        return t.alias("resid_post", x)
    written = apply_mlp(t, _placed(t, config, "mlp_norm", x), config.mlp, dropout)
    return _joined(t, config, "mlp", "resid_post", x, written, dropout)


def _joined(
    t: Scope,
    config: ModelConfig,
    sub_layer: str,
    stream: str,
    x: Ref,
    written: Ref,
    dropout: KeepMasks | None,
) -> Ref:
    """The stream after a sub-layer, from the stream before and what the sub-layer wrote."""
    written = _placed(
        t, config, f"{sub_layer}_out_norm", apply_dropout(t, f"{sub_layer}_out", written, dropout)
    )
    if "post_norm" not in config.placement.places:
        return add_residual(t, stream, x, written, config.residual)
    x = add_residual(t, f"{sub_layer}_sum", x, written, config.residual)
    return t.alias(stream, _placed(t, config, f"{sub_layer}_post_norm", x))


def _placed(t: Scope, config: ModelConfig, name: str, x: Ref) -> Ref:
    """Normed where the config has a norm at this place, and else as it is."""
    there = name.partition("_")[2] in config.placement.places
    return normalize(t.scope(name), x, config.norm) if there else x


def unembed(tape: Tape, config: ModelConfig, x: Ref) -> Ref:
    """One score per token, and the probabilities that they mean."""
    bias = [tape.ref("unembed.bias")] if "unembed.bias" in tape else []
    spec = "btc,vc+v->btv" if bias else "btc,vc->btv"
    name = "logits" if config.logit_cap.is_none else "unembedded"
    logits = tape(name, einsum, x, tape.ref(config.unembedding.weight), *bias, spec=spec)
    logits = apply_cap(tape, "logits", logits, config.logit_cap)
    tape("probs", softmax, logits)
    return logits


def cache(tape: Tape, config: ModelConfig) -> dict[str, Array]:
    """What the next call reads as `past`: every layer's keys (turned) and values so far."""
    found = {}
    for layer in range(config.n_layer):
        t = tape.scope(f"blocks.{layer}.attn")
        keys = next(name for name in ("k_all", "k_rot", "k") if name in t)
        values = next(name for name in ("v_all", "v") if name in t)
        found[f"{t.prefix}.past_k"] = tape[t.ref(keys)]
        found[f"{t.prefix}.past_v"] = tape[t.ref(values)]
    return found


def _checked(config: ModelConfig, ids: Any, start: int) -> Array:
    """Ids [B T] that this model can read."""
    array = np.asarray(ids)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "iu":
        raise TapeError(f"ids must be whole numbers [B T], at least one; got shape {array.shape}.")
    if array.min() < 0 or array.max() >= config.vocab_size:
        raise TapeError(f"ids go from 0 to {config.vocab_size - 1}; got {array.min()} to {array.max()}.")
    if start + array.shape[1] > config.context_length:
        raise TapeError(f"{start + array.shape[1]} tokens do not fit the context of {config.context_length}.")
    return array
