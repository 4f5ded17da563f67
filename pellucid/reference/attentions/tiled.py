"""Softmax attention over tiles of keys, by online softmax (FlashAttention): no row of scores exists whole.

The result is that of softmax attention; the memory is that of one tile.
"""

from pellucid.config import ModelConfig
from pellucid.parts.attentions.tiled import TiledAttentionConfig
from pellucid.reference.attentions import AttentionRefs
from pellucid.reference.layers import KeepMasks, apply_cap
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import narrow
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.online_softmax import (
    running_lse,
    running_max,
    running_output,
    running_sum,
    shifted_exp,
    tiled_output,
)
from pellucid.reference.tape import TapeScope

DESCRIPTIONS = {
    "k": ("b k s d", "K", "keys of this tile"),
    "v": ("b k s d", "V", "values of this tile"),
    "bias": ("h t s", "B", "position bias of this tile"),
    "mask": ("b 1 t s", "mask", "attention mask of this tile: 1 where a query may attend to a key, else 0"),
    "scores": ("b h t s", "S", "attention scores of this tile: query · key / √D"),
    "capped": ("b h t s", "S_cap", "soft-capped attention scores of this tile"),
    "biased": ("b h t s", "S_B", "attention scores plus position bias of this tile"),
    "masked": ("b h t s", "M", "masked attention scores of this tile: −∞ where the mask is 0"),
    "top": ("b h t 1", "m", "running maximum: the largest score of each row so far"),
    "powers": ("b h t s", "E", "shifted exponentials of this tile: e^(score − running maximum)"),
    "rescale": ("b h t 1", "α", "rescaling factor of earlier sums: e^(old maximum − new maximum)"),
    "sum": ("b h t 1", "l", "running sum: of the shifted exponentials"),
    "mix": ("b h t d", "Y", "running output: the values weighted by the shifted exponentials"),
}
"""Axes, symbol and meaning of the values of one tile."""


def apply(
    t: TapeScope,
    config: ModelConfig,
    q: Ref,
    k: Ref,
    v: Ref,
    inputs: AttentionRefs,
    dropout: KeepMasks | None,
) -> Ref:
    attention = config.attention
    assert isinstance(attention, TiledAttentionConfig)
    tiles: list[Ref] = []
    running: dict[str, Ref] = {}
    for j, start in enumerate(range(0, k.shape[2], attention.tile)):
        tile, count = t.scope(f"tiles.{j}"), min(attention.tile, k.shape[2] - start)
        masked, values = _scores(tile, config, q, k, v, inputs, start, count)
        running = _update_running(tile, masked, values, running)
        tiles += [masked, values]
        for name, (axes, symbol, meaning) in DESCRIPTIONS.items():
            if f"{tile.prefix}.{name}" in t.tape.values:
                ref = tile.ref(name)
                axes = axes if len(ref.shape) == len(axes.split()) else f"b {axes}"  # of packed rows
                t.tape.describe(ref, axes, f"{symbol}_{j}", meaning)
    lse = t("lse", running_lse, running["top"], running["sum"])
    t.tape.describe(lse, "b h t 1", "lse", "log-sum-exp of each row of scores: ln P = score − lse")
    return t("z", tiled_output, running["mix"], running["sum"], lse, *tiles)


def _scores(
    t: TapeScope, config: ModelConfig, q: Ref, k: Ref, v: Ref, inputs: AttentionRefs, start: int, count: int
) -> tuple[Ref, Ref]:
    """Returns the masked scores [B H T tile] and the values [B K tile D] of one tile."""
    here = {"start": start, "length": count}
    scale = config.d_head**-0.5 * config.positions.attention_scale
    keys, values = t("k", narrow, k, axis=2, **here), t("v", narrow, v, axis=2, **here)
    scores = t("scores", einsum, q, keys, spec="b(kg)td,bksd->b(kg)ts", scale=scale)
    scores = apply_cap(t, "capped", scores, config.score_cap)
    if inputs.bias:
        scores = t(
            "biased", add, scores, t("bias", narrow, inputs.bias, axis=len(inputs.bias.shape) - 1, **here)
        )
    if inputs.mask:
        return t("masked", mask, scores, t("mask", narrow, inputs.mask, axis=3, **here)), values
    return t.alias("masked", scores), values


def _update_running(t: TapeScope, masked: Ref, values: Ref, before: dict[str, Ref]) -> dict[str, Ref]:
    """Returns the running maximum [B H T 1], sum [B H T 1] and output [B H T D] after this tile."""
    top = t("top", running_max, masked, *([before["top"]] if before else []))
    powers = t("powers", shifted_exp, masked, top)
    earlier: list[Ref] = [t("rescale", shifted_exp, before["top"], top)] if before else []
    sums = [before["sum"], *earlier] if before else []
    mixes = [before["mix"], *earlier] if before else []
    return {
        "top": top,
        "sum": t("sum", running_sum, powers, *sums),
        "mix": t("mix", running_output, powers, values, *mixes),
    }
