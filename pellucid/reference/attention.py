"""The attention layer: projections to queries, keys and values, QK norm, RoPE, the cache, and the output.

How the values are weighted is the config's choice, one file per form in `attentions/`; the rest is the same.
"""

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
) -> Ref:
    """Returns the attention output [B T C] of x [B T C]."""
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
    if "o_proj.weight" in t:
        return linear(block, "attn_out", z, "attn.o_proj", "bhtd,c(hd)->btc")
    return block("attn_out", einsum, z, spec="bhtd->bt(hd)")
