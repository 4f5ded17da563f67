"""Softmax attention: Z = softmax(mask(cap(Q Kᵀ / √D) + B)) V."""

from pellucid.config import ModelConfig
from pellucid.reference.attentions import AttentionRefs
from pellucid.reference.layers import KeepMasks, apply_cap, apply_dropout
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.softmax import softmax
from pellucid.reference.tape import TapeScope


def apply(
    t: TapeScope,
    config: ModelConfig,
    q: Ref,
    k: Ref,
    v: Ref,
    inputs: AttentionRefs,
    dropout: KeepMasks | None,
) -> Ref:
    scale = config.d_head**-0.5 * config.positions.attention_scale
    scores = t("scores", einsum, q, k, spec="b(kg)td,bksd->b(kg)ts", scale=scale)
    scores = apply_cap(t, "capped", scores, config.score_cap)
    if inputs.bias:
        scores = t("biased", add, scores, inputs.bias)
    masked = t("masked", mask, scores, inputs.mask) if inputs.mask else t.alias("masked", scores)
    pattern = apply_dropout(t, "pattern", t("pattern", softmax, masked), dropout)
    return t("z", einsum, pattern, v, spec="b(kg)ts,bksd->b(kg)td")
