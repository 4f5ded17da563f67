"""The transformer, from token ids to logits and loss: the definition of what the product computes.

Read it beside the glossary (`names.py`): every first argument below is a name in it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import TapeError
from pellucid.reference.linear import linear
from pellucid.reference.mlps import feed_forward
from pellucid.reference.norms import normed
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.cross_entropy import IGNORED, cross_entropy
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.join import concat
from pellucid.reference.ops.lookup import take
from pellucid.reference.ops.mask import mask
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.reference.residuals import joined
from pellucid.reference.tape import Scope, Tape

Cache = Mapping[str, Array]


class Where(NamedTuple):
    """What attention needs to know about places: how far to turn, which pairs, what may be seen."""

    angles: Ref | None
    layout: str
    allowed: Ref | None


def transformer(
    tape: Tape,
    config: ModelConfig,
    ids: Any,
    *,
    past: Cache | None = None,
    padding: Any = None,
) -> Ref:
    """Logits [B T V] of the ids [B T]; the parameters are already on the tape.

    `past` is the cache of the tokens before; `padding` [B S] is 1 for a real token, 0 for padding.
    """
    start = past["blocks.0.attn.past_k"].shape[2] if past else 0
    ids = tape.constant("ids", _checked(config, ids, start))
    positions = np.arange(start, start + ids.shape[1])
    x = embed(tape, config, ids, positions)
    where = whereabouts(tape, config, positions, ids.shape[0], padding)
    for layer in range(config.n_layer):
        x = block(tape.scope(f"blocks.{layer}"), config, x, where, past)
    x = normed(tape.scope("final_norm"), x, config.norm)
    return unembed(tape, config, x)


def embed(tape: Tape, config: ModelConfig, ids: Ref, positions: Array) -> Ref:
    """Each token's row of the embedding, plus its position's row where the positions have rows."""
    x = tape("embedded", take, tape.ref("embed.weight"), ids)
    fixed, learned = config.positions.rows(positions, config.d_model), config.positions.row_ids(positions)
    if fixed is not None:
        rows = tape.constant("position_rows", fixed)
    elif learned is not None:
        ids = tape.constant("position_ids", learned)
        rows = tape("position_rows", take, tape.ref("positions.weight"), ids)
    else:
        return tape.alias("positioned", x)
    return tape("positioned", add, x, rows)


def whereabouts(tape: Tape, config: ModelConfig, positions: Array, batch: int, padding: Any) -> Where:
    """The angles of the positions, and the mask [B 1 T S]: the config's, less what is padding."""
    keys = np.arange(positions[-1] + 1)
    if padding is not None and np.shape(padding) != (batch, len(keys)):
        raise TapeError(f"padding {np.shape(padding)} must have one for each place, {(batch, len(keys))}.")
    turn = config.positions.turn(positions, config.d_head)
    angles, layout = (tape.constant("angles", turn.angles), turn.layout) if turn else (None, "")
    allowed = config.mask.allowed(positions, keys)
    if allowed is None and padding is None:
        return Where(angles, layout, None)
    seen = np.ones((batch, 1, len(positions), len(keys)))
    seen = seen if allowed is None else seen * allowed
    seen = seen if padding is None else seen * np.asarray(padding)[:, None, None, :]
    return Where(angles, layout, tape.constant("mask", seen))


def block(t: Scope, config: ModelConfig, x: Ref, where: Where, past: Cache | None) -> Ref:
    """X_mid = X + Attention(norm X);  X_post = X_mid + FeedForward(norm X_mid)."""
    x = t.alias("resid_pre", x)
    attended = attention(t, config, normed(t.scope("attn_norm"), x, config.norm), where, past)
    x = joined(t, "resid_mid", x, attended, config.residual)
    if not config.mlp.values:
        return t.alias("resid_post", x)
    written = feed_forward(t, normed(t.scope("mlp_norm"), x, config.norm), config.mlp)
    return joined(t, "resid_post", x, written, config.residual)


def attention(block: Scope, config: ModelConfig, x: Ref, where: Where, past: Cache | None) -> Ref:
    """Each position takes from the others, P = softmax(Q Kᵀ / √D), as much as its query finds."""
    t = block.scope("attn")
    q = linear(t, "q", x, "q_proj", "btc,(hd)c->bhtd", h=config.n_head)
    k = linear(t, "k", x, "k_proj", "bsc,(kd)c->bksd", k=config.n_kv_head)
    v = linear(t, "v", x, "v_proj", "bsc,(kd)c->bksd", k=config.n_kv_head)
    if where.angles:
        q = t("q_rot", rotate, q, where.angles, layout=where.layout)
        k = t("k_rot", rotate, k, where.angles, layout=where.layout)
    if past:
        k = t("k_all", concat, t.constant("past_k", past[f"{t.prefix}.past_k"]), k, axis=2)
        v = t("v_all", concat, t.constant("past_v", past[f"{t.prefix}.past_v"]), v, axis=2)
    scores = t("scores", einsum, q, k, spec="b(kg)td,bksd->b(kg)ts", scale=config.d_head**-0.5)
    masked = t("masked", mask, scores, where.allowed) if where.allowed else t.alias("masked", scores)
    pattern = t("pattern", softmax, masked)
    z = t("z", einsum, pattern, v, spec="b(kg)ts,bksd->b(kg)td")
    if "o_proj.weight" in t:
        return linear(block, "attn_out", z, "attn.o_proj", "bhtd,c(hd)->btc")
    return block("attn_out", einsum, z, spec="bhtd->bt(hd)")


def unembed(tape: Tape, config: ModelConfig, x: Ref) -> Ref:
    """One score per token, and the probabilities that they mean."""
    bias = [tape.ref("unembed.bias")] if "unembed.bias" in tape else []
    spec = "btc,vc+v->btv" if bias else "btc,vc->btv"
    logits = tape("logits", einsum, x, tape.ref(config.unembedding.weight), *bias, spec=spec)
    tape("probs", softmax, logits)
    return logits


def loss(tape: Tape, logits: Ref, targets: Any) -> Ref:
    """The mean of −ln p(target) over the targets [B T] that are not IGNORED."""
    targets = np.asarray(targets)
    if targets.shape != logits.shape[:-1]:
        raise TapeError(f"targets {targets.shape} must have one for each position, {logits.shape[:-1]}.")
    counted = int((targets != IGNORED).sum())
    lse = tape("lse", logsumexp, logits)
    nll = tape("nll", cross_entropy, logits, lse, tape.constant("targets", targets))
    return tape("loss", einsum, nll, spec="bt->", scale=1 / max(counted, 1))


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
