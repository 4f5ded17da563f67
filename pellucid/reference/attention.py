"""The attention layer: projections to queries, keys and values, QK norm, RoPE, the cache, and the output.

How the values are weighted is the config's choice, one file per form in `attentions/`; the rest is the same.
"""

import numpy as np

from pellucid.config import ModelConfig
from pellucid.reference.attentions import AttentionRefs, Past, attend
from pellucid.reference.layers import KeepMasks, linear
from pellucid.reference.norms import normalize
from pellucid.reference.op import Ref
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import concat
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.tape import TapeScope


def attention(
    block: TapeScope,
    config: ModelConfig,
    x: Ref,
    inputs: AttentionRefs,
    past: Past | None,
    dropout: KeepMasks | None,
    by_head: bool = False,
) -> Ref:
    """Returns the attention output [B T C] of x [B T C]; `by_head`, as the sum of what each head adds."""
    t = block.scope("attn")
    q = linear(t, "q", x, "q_proj", "btc,(hd)c->bhtd", h=config.n_head)
    k = linear(t, "k", x, "k_proj", "bsc,(kd)c->bksd", k=config.n_kv_head)
    v = linear(t, "v", x, "v_proj", "bsc,(kd)c->bksd", k=config.n_kv_head)
    if not config.qk_norm.is_none:
        q = t.alias("q_normed", normalize(t.scope("q_norm"), q, config.qk_norm))
        k = t.alias("k_normed", normalize(t.scope("k_norm"), k, config.qk_norm))
    if inputs.angles:
        q = t("q_rot", rotate, q, inputs.angles, layout=inputs.layout)
        k = t("k_rot", rotate, k, inputs.angles, layout=inputs.layout)
    if past:
        k = t("k_all", concat, t.constant("past_k", past[f"{t.prefix}.past_k"]), k, axis=2)
        v = t("v_all", concat, t.constant("past_v", past[f"{t.prefix}.past_v"]), v, axis=2)
    z = attend(t, config, q, k, v, inputs, dropout)
    if by_head:
        return sum_heads(block, config, z)
    if "o_proj.weight" in t:
        return linear(block, "attn_out", z, "attn.o_proj", "bhtd,c(hd)->btc")
    return block("attn_out", einsum, z, spec="bhtd->bt(hd)")


def sum_heads(block: TapeScope, config: ModelConfig, z: Ref) -> Ref:
    """Returns the attention output [B T C] = Σ_h head_out (+ b_O), where head_out [B H T C] = z W_O, each
    head with its own rows of W_O (columns of the stored weight, which is (out, in)); without a W_O, each head
    adds to its own channels."""
    t = block.scope("attn")
    if "o_proj.weight" in t:
        weight = t.ref("o_proj.weight")
    elif "head_channels" in block.tape:
        weight = block.tape.ref("head_channels")
    else:
        weight = block.tape.constant("head_channels", np.eye(config.n_head * config.d_head))
    out = t("head_out", einsum, z, weight, spec="bhtd,c(hd)->bhtc")
    if "o_proj.bias" in t:
        return block("attn_out", einsum, out, t.ref("o_proj.bias"), spec="bhtc+c->btc")
    return block("attn_out", einsum, out, spec="bhtc->btc")
