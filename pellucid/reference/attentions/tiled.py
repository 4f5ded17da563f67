"""Softmax attention with the keys taken tile by tile: no row of scores is ever there as a whole.

The numbers are those of softmax attention; what differs is what must be held at one time, which is why fast
kernels work this way.
"""

from pellucid.config import ModelConfig
from pellucid.parts.attentions.tiled import TiledAttentionConfig
from pellucid.reference.attention import AttentionRefs
from pellucid.reference.caps import apply_cap
from pellucid.reference.dropout import KeepMasks
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
from pellucid.reference.tape import Scope

TOLD = {
    "k": ("b k s d", "K", "the keys of this tile"),
    "v": ("b k s d", "V", "the values of this tile"),
    "bias": ("h t s", "B", "the bias of this tile's distances"),
    "mask": ("b 1 t s", "mask", "1 where a position of this tile may be looked at, 0 where not"),
    "scores": ("b h t s", "S", "how well each key of this tile answers each query"),
    "capped": ("b h t s", "S_cap", "the scores of this tile, none beyond the cap"),
    "biased": ("b h t s", "S_B", "the scores of this tile with the bias of their distance"),
    "masked": ("b h t s", "M", "the scores of this tile, −∞ where looking is forbidden"),
    "top": ("b h t 1", "m", "the largest score of each row so far"),
    "powers": ("b h t s", "E", "e to the scores of this tile, the largest so far taken off"),
    "rescale": ("b h t 1", "α", "what remains of earlier sums, now that the largest is another"),
    "sum": ("b h t 1", "l", "the sum of the powers so far"),
    "mix": ("b h t d", "Y", "the values so far, each times its power"),
}
"""Axes, symbol and meaning of what one tile makes."""


def apply(
    t: Scope, config: ModelConfig, q: Ref, k: Ref, v: Ref, inputs: AttentionRefs, dropout: KeepMasks | None
) -> Ref:
    attention = config.attention
    assert isinstance(attention, TiledAttentionConfig)
    tiles: list[Ref] = []
    running: dict[str, Ref] = {}
    for j, start in enumerate(range(0, k.shape[2], attention.tile)):
        tile, count = t.scope(f"tiles.{j}"), min(attention.tile, k.shape[2] - start)
        masked, values = _scores(tile, config, q, k, v, inputs, start, count)
        running = _run_along(tile, masked, values, running)
        tiles += [masked, values]
        for name, (axes, symbol, meaning) in TOLD.items():
            if f"{tile.prefix}.{name}" in t.tape.values:
                ref = tile.ref(name)
                axes = axes if len(ref.shape) == len(axes.split()) else f"b {axes}"  # of packed rows
                t.tape.describe(ref, axes, f"{symbol}_{j}", meaning)
    lse = t("lse", running_lse, running["top"], running["sum"])
    t.tape.describe(lse, "b h t 1", "lse", "log-sum-exp of each row of scores: −lse turns a score into ln P")
    return t("z", tiled_output, running["mix"], running["sum"], lse, *tiles)


def _scores(
    t: Scope, config: ModelConfig, q: Ref, k: Ref, v: Ref, inputs: AttentionRefs, start: int, count: int
) -> tuple[Ref, Ref]:
    """The masked scores [B H T tile] and the values [B K tile D] of one tile."""
    here = {"start": start, "length": count}
    scale = config.d_head**-0.5 * config.positions.attention_scale
    keys, values = t("k", narrow, k, axis=2, **here), t("v", narrow, v, axis=2, **here)
    scores = t("scores", einsum, q, keys, spec="b(kg)td,bksd->b(kg)ts", scale=scale)
    scores = apply_cap(t, "capped", scores, config.score_cap)
    if inputs.bias:
        scores = t(
            "biased", add, scores, t("bias", narrow, inputs.bias, axis=len(inputs.bias.shape) - 1, **here)
        )
    if inputs.allowed:
        return t("masked", mask, scores, t("mask", narrow, inputs.allowed, axis=3, **here)), values
    return t.alias("masked", scores), values


def _run_along(t: Scope, masked: Ref, values: Ref, before: dict[str, Ref]) -> dict[str, Ref]:
    """The running maximum, sum and mixture after this tile."""
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
