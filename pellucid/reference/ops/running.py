"""Softmax over keys that arrive tile by tile: the values that run along, and the mixture they end in.

A running maximum m, a running sum l of e^(s − m) and a running mixture Σ e^(s − m) v: when a tile brings a
larger maximum, what was summed so far is multiplied with e^(m_before − m). At the end z = mixture / l.

The running values have no gradients of their own. The last step gives those of all tiles at once, each from
P = e^(s − lse), which needs the scores, the values and lse = m + ln l, and none of what ran along.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import (
    Array,
    Attrs,
    Box,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    each,
    operation,
    same_cell,
    same_row,
    zeros,
)
from pellucid.reference.ops.einsum import einsum

MIXED = "b(kg)ts,bksd->b(kg)td"
COMPARED = "b(kg)td,bksd->b(kg)ts"
GATHERED = "b(kg)ts,b(kg)td->bksd"


def _finite(top: Any) -> Any:
    """A maximum that can be subtracted: 0 where all so far is −∞, for −∞ − 0 is −∞ still."""
    return np.where(top > -np.inf, top, 0.0)


def _row_to_keep(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    return Reads(tuple(same_row(index[:-1], shape) for shape in shapes), attrs, zeros(index))


def _top_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = max({1}, max_s {0})" if len(shapes) > 1 else "{y} = max(max_s {0})"


@operation(_row_to_keep, _top_formula)
def running_top(scores: Any, *before: Any) -> Any:
    """m = max(m_before, max_j s_j)."""
    top = scores.max(axis=-1, keepdims=True)
    return np.maximum(before[0], top) if before else top


@operation(each, "{y} = e^({0} - {1})")
def above(scores: Any, top: Any) -> Any:
    """e^(s − m), 0 where s is −∞: the powers of a tile's scores, and how much of an earlier sum remains."""
    return np.exp(scores - _finite(top))


def _sum_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = {1} · {2} + Σ_s {0}" if len(shapes) > 1 else "{y} = Σ_s {0}"


@operation(_row_to_keep, _sum_formula)
def running_sum(powers: Any, *before: Any) -> Any:
    """l = l_before · e^(m_before − m) + Σ_j e^(s_j − m)."""
    new = powers.sum(axis=-1, keepdims=True)
    return before[0] * before[1] + new if before else new


def _mix_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    need = einsum.reads(index, shapes[:2], {"spec": MIXED})
    return Reads((*need.boxes, *(same_cell(index, shape) for shape in shapes[2:])), attrs, zeros(index))


def _mix_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = {2} · {3} + Σ_s {0} {1}" if len(shapes) > 2 else "{y} = Σ_s {0} {1}"


@operation(_mix_reads, _mix_formula)
def running_mix(powers: Any, values: Any, *before: Any) -> Any:
    """o = o_before · e^(m_before − m) + Σ_j e^(s_j − m) v_j."""
    new = einsum.forward(powers, values, spec=MIXED)
    return before[0] * before[1] + new if before else new


@operation(each, "{y} = {0} + ln({1})")
def running_lse(top: Any, total: Any) -> Any:
    """lse = m + ln l, the log-sum-exp of the whole row; −∞ where every score was."""
    return top + np.log(np.where(total > 0, total, 1.0))


def _nothing(shape: Shape) -> Box:
    none: Array = np.array([], dtype=int)
    return (none,) * len(shape)


def _mixture_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell is a quotient of two numbers; the rest is there for the gradient."""
    mix, total, *tiles = shapes
    boxes = (same_cell(index, mix), same_cell(index, total), *map(_nothing, tiles))
    return Reads(boxes, attrs, zeros(index))


@operation(_mixture_reads, "{y} = {0} / {1}")
def mixture(mix: Any, total: Any, lse: Any, *tiles: Any) -> Any:
    """z = o / l, 0 where every score was −∞. `tiles` are the scores and values of each tile in turn."""
    return mix / np.where(total > 0, total, 1.0)


@mixture.gradient
def _(y: Ref, dy: Ref, mix: Ref, total: Ref, lse: Ref, *tiles: Ref) -> Gradients:
    """Tile by tile: dS = P ⊙ (dZ Vᵀ − Δ) with Δ = Σ_d dZ ⊙ Z, and dV = Pᵀ dZ."""
    for ran_along in (mix, total, lse):
        yield ran_along, None
    for scores, values in zip(tiles[::2], tiles[1::2], strict=True):
        yield scores, mixture_scores_back(scores, values, lse, y, dy)
        yield values, mixture_values_back(scores, lse, dy, heads=values.shape[1])


def _scores_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    scores, values, lse, _, dz = shapes
    arriving, row = einsum.reads(index, (dz, values), {"spec": COMPARED}).boxes
    boxes = (same_cell(index, scores), row, same_cell(index, lse), arriving, arriving)
    return Reads(boxes, attrs, zeros(index))


@operation(_scores_back_reads, "{y} = e^({0} - {2}) · (Σ_d {4} {1} - Σ_d {4} {3})")
def mixture_scores_back(scores: Any, values: Any, lse: Any, z: Any, dz: Any) -> Any:
    """ds = e^(s − lse) (dz·v − dz·z): a score rises when its value is wanted more than the mixture."""
    wanted = einsum.forward(dz, values, spec=COMPARED)
    return np.exp(scores - _finite(lse)) * (wanted - (dz * z).sum(axis=-1, keepdims=True))


def _values_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    scores, _, dz = shapes
    need = einsum.reads(index, (scores, dz), {"spec": GATHERED, "k": attrs["heads"]})
    column, arriving = need.boxes
    per_row = (*column[:-1], np.array([0]))
    return Reads((column, per_row, arriving), {"heads": 1}, zeros(index))


@operation(_values_back_reads, "{y} = Σ_t e^({0} - {1}) {2}", sizes=("heads",))
def mixture_values_back(scores: Any, lse: Any, dz: Any, heads: int) -> Any:
    """dv_j = Σ_t e^(s_tj − lse_t) dz_t, over all queries that read this key."""
    return einsum.forward(np.exp(scores - _finite(lse)), dz, spec=GATHERED, k=heads)
