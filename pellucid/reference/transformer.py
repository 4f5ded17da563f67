"""The transformer, from token ids to logits: the definition of what the product computes.

Read it beside the glossary (`names.py`): every first argument below is a name in it.
"""

from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import TapeError
from pellucid.reference.attention import AttentionRefs, Past, attention
from pellucid.reference.caps import apply_cap
from pellucid.reference.dropout import KeepMasks, apply_dropout
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.norms import normalize
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.lookup import take
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
    dropout: KeepMasks | None = None,
) -> Ref:
    """Logits [B T V] of the ids [B T]; the parameters are already on the tape.

    `past` is the cache of the tokens before; `padding` [B S] is 1 for a real token, 0 for padding; `dropout`
    holds what each value X that is dropped out is multiplied with, under the name X.keep.
    """
    start = past["blocks.0.attn.past_k"].shape[2] if past else 0
    ids = tape.constant("ids", _checked(config, ids, start))
    positions = np.arange(start, start + ids.shape[1])
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
        x = tape("positioned", add, x, tape.constant("position_rows", fixed))
    elif learned is not None:
        ids = tape.constant("position_ids", learned)
        x = tape("positioned", add, x, tape("position_rows", take, tape.ref("positions.weight"), ids))
    else:
        tape.alias("positioned", x)
    x = apply_dropout(tape, "positioned", x, dropout)
    return normalize(tape.scope("embed_norm"), x, config.embed_norm) if not config.embed_norm.is_none else x


def attention_inputs(
    tape: Tape, config: ModelConfig, positions: Array, batch: int, padding: Any
) -> AttentionRefs:
    """The angles of the positions, the bias [H T S] of their distances, and the mask [B 1 T S]: the config's,
    less what is padding."""
    keys = np.arange(positions[-1] + 1)
    if padding is not None and np.shape(padding) != (batch, len(keys)):
        raise TapeError(f"padding {np.shape(padding)} must have one for each place, {(batch, len(keys))}.")
    rotation = config.positions.rotation(positions, config.d_head)
    angles, layout = (tape.constant("angles", rotation.angles), rotation.layout) if rotation else (None, "")
    bias = position_bias(tape, config, positions[:, None] - keys)
    allowed = config.mask.allowed(positions, keys)
    if allowed is None and padding is None:
        return AttentionRefs(angles, layout, bias, None)
    seen = np.ones((batch, 1, len(positions), len(keys)))
    seen = seen if allowed is None else seen * allowed
    seen = seen if padding is None else seen * np.asarray(padding)[:, None, None, :]
    return AttentionRefs(angles, layout, bias, tape.constant("mask", seen))


def position_bias(tape: Tape, config: ModelConfig, distances: Array) -> Ref | None:
    """What the positions add to the scores, the same in every layer: a fixed table, or looked-up rows."""
    fixed, learned = config.positions.bias(distances, config.n_head), config.positions.bias_ids(distances)
    if fixed is not None:
        return tape.constant("position_bias", fixed)
    if learned is None:
        return None
    rows = tape("bias_rows", take, tape.ref("position_bias.weight"), tape.constant("bias_ids", learned))
    return tape("position_bias", einsum, rows, spec="tsh->hts")


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
