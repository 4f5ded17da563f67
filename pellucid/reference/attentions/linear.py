"""Linear attention: P = φ(Q) φ(K)ᵀ divided by the sums of its rows, Z = P V.

`apply` computes the whole attention pattern, O(T²). `recurrent` computes the same z from running sums, one
token at a time, O(T).
"""

from pellucid.config import ModelConfig
from pellucid.parts.attentions import LinearAttentionConfig
from pellucid.reference.attentions import AttentionRefs
from pellucid.reference.layers import KeepMasks
from pellucid.reference.op import Ref
from pellucid.reference.ops import find_op
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import concat, narrow
from pellucid.reference.ops.normalization import l1_normalize, safe_divide
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
    q_feat, k_feat = features(t, "q_feat", q, config), features(t, "k_feat", k, config)
    if inputs.mask:
        spec = "b(kg)tr,bksr,b1ts->b(kg)ts"
        kernel = t("kernel", einsum, q_feat, k_feat, inputs.mask, spec=spec)
    else:
        kernel = t("kernel", einsum, q_feat, k_feat, spec="b(kg)tr,bksr->b(kg)ts")
    pattern = t("pattern", l1_normalize, kernel)
    return t("z", einsum, pattern, v, spec="b(kg)ts,bksd->b(kg)td")


def features(t: TapeScope, name: str, x: Ref, config: ModelConfig) -> Ref:
    """Returns φ(x) [… R]. The random directions, where the feature map has any, are shared by all layers."""
    attention = config.attention
    assert isinstance(attention, LinearAttentionConfig)
    table = attention.directions(config.d_head)
    if table is None:
        return t(name, find_op(attention.feature), x)
    is_known = "directions" in t.tape
    directions = t.tape.ref("directions") if is_known else t.tape.constant("directions", table)
    scale = config.d_head**-0.25
    return t(name, find_op(attention.feature), x, directions, scale=scale, features=len(table))


def recurrent(t: TapeScope, q_feat: Ref, k_feat: Ref, v: Ref) -> Ref:
    """Returns the same z under the causal mask, from running sums:

    S_t = S_{t−1} + φ(k_t)ᵀ v_t,   n_t = n_{t−1} + φ(k_t),   z_t = φ(q_t) S_t / (φ(q_t) · n_t)
    """
    outputs, before = [], list[Ref]()
    for i in range(q_feat.shape[2]):
        step, here = t.scope(f"recurrent.{i}"), {"axis": 2, "start": i, "length": 1}
        q, k, value = (
            step("q", narrow, q_feat, **here),
            step("k", narrow, k_feat, **here),
            step("v", narrow, v, **here),
        )
        if before:
            state = step("state", einsum, k, value, before[0], spec="bksr,bksd+bkrd->bkrd")
            norm = step("norm", einsum, k, before[1], spec="bksr+bkr->bkr")
        else:
            state = step("state", einsum, k, value, spec="bksr,bksd->bkrd")
            norm = step("norm", einsum, k, spec="bksr->bkr")
        read = step("read", einsum, q, state, spec="b(kg)tr,bkrd->b(kg)td")
        total = step("total", einsum, q, norm, spec="b(kg)tr,bkr->b(kg)t1")
        outputs.append(step("z", safe_divide, read, total))
        before = [state, norm]
        descriptions = {
            q: ("b h t r", "φ(q)", "query features of this token"),
            k: ("b k s r", "φ(k)", "key features of this token"),
            value: ("b k s d", "v", "value of this token"),
            state: ("b k r d", "S", "state: Σ φ(key)ᵀ value over the tokens so far"),
            norm: ("b k r", "n", "normalizer state: Σ φ(key) over the tokens so far"),
            read: ("b h t d", "y", "unnormalized output: φ(query) · S"),
            total: ("b h t 1", "c", "normalizer: φ(query) · n"),
            outputs[-1]: ("b h t d", "z", "head outputs of this token"),
        }
        for ref, (axes, symbol, meaning) in descriptions.items():
            t.tape.describe(ref, axes, f"{symbol}_{i}", meaning)
    z = t("recurrent.z", concat, *outputs, axis=2)
    return t.tape.describe(z, "b h t d", "Z", "head outputs: computed token by token")
