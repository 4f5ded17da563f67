"""Online softmax: attention over keys that arrive tile by tile, as FlashAttention computes it.

It keeps a running maximum m, a running sum l of e^(s − m) and a running output o = Σ e^(s − m) v: when a tile
has a larger maximum, l and o are multiplied by e^(m_before − m). At the end z = o / l.

The running values have no gradients of their own. The last step yields those of all tiles, each from
P = e^(s − lse), which needs the scores, the values and lse = m + ln l, and none of the running values.
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
    reduced_row,
    same_cell,
    zeros,
)
from pellucid.reference.ops.einsum import einsum

WEIGHTED_SUM = "b(kg)ts,bksd->b(kg)td"
SCORES = "b(kg)td,bksd->b(kg)ts"
VALUES_BACK = "b(kg)ts,b(kg)td->bksd"


def _finite(top: Any) -> Any:
    """Returns a maximum that can be subtracted: 0 where all scores so far are −∞, because −∞ − 0 is −∞."""
    return np.where(top > -np.inf, top, 0.0)


def _max_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = max({1}, max_s {0})" if len(shapes) > 1 else "{y} = max(max_s {0})"


@operation(reduced_row, _max_formula)
def running_max(scores: Any, *before: Any) -> Any:
    """m = max(m_before, max_j s_j)."""
    top = scores.max(axis=-1, keepdims=True)
    return np.maximum(before[0], top) if before else top


@operation(each, "{y} = e^({0} - {1})")
def shifted_exp(scores: Any, top: Any) -> Any:
    """e^(s − m), 0 where s is −∞: of a tile's scores, or the rescaling of an earlier sum (s = m_before)."""
    return np.exp(scores - _finite(top))


def _sum_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = {1} · {2} + Σ_s {0}" if len(shapes) > 1 else "{y} = Σ_s {0}"


@operation(reduced_row, _sum_formula)
def running_sum(exps: Any, *before: Any) -> Any:
    """l = l_before · e^(m_before − m) + Σ_j e^(s_j − m)."""
    new = exps.sum(axis=-1, keepdims=True)
    return before[0] * before[1] + new if before else new


def _output_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    need = einsum.reads(index, shapes[:2], {"spec": WEIGHTED_SUM})
    return Reads((*need.boxes, *(same_cell(index, shape) for shape in shapes[2:])), attrs, zeros(index))


def _output_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = {2} · {3} + Σ_s {0} {1}" if len(shapes) > 2 else "{y} = Σ_s {0} {1}"


@operation(_output_reads, _output_formula)
def running_output(exps: Any, values: Any, *before: Any) -> Any:
    """o = o_before · e^(m_before − m) + Σ_j e^(s_j − m) v_j."""
    new = einsum.forward(exps, values, spec=WEIGHTED_SUM)
    return before[0] * before[1] + new if before else new


@operation(each, "{y} = {0} + ln({1})")
def running_lse(top: Any, total: Any) -> Any:
    """lse = m + ln l, the log-sum-exp of the whole row; −∞ where every score is."""
    return top + np.log(np.where(total > 0, total, 1.0))


def _no_cells(shape: Shape) -> Box:
    none: Array = np.array([], dtype=int)
    return (none,) * len(shape)


def _tiled_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell is a quotient of two numbers; the other inputs are there for the gradient."""
    output, total, *tiles = shapes
    boxes = (same_cell(index, output), same_cell(index, total), *map(_no_cells, tiles))
    return Reads(boxes, attrs, zeros(index))


@operation(_tiled_reads, "{y} = {0} / {1}")
def tiled_output(output: Any, total: Any, lse: Any, *tiles: Any) -> Any:
    """z = o / l, 0 where every score is −∞. `tiles` are the scores and values of each tile in turn."""
    return output / np.where(total > 0, total, 1.0)


@tiled_output.gradient
def _(y: Ref, dy: Ref, output: Ref, total: Ref, lse: Ref, *tiles: Ref) -> Gradients:
    """Tile by tile: dS = P ⊙ (dZ Vᵀ − Δ) with Δ = Σ_d dZ ⊙ Z, and dV = Pᵀ dZ."""
    for running in (output, total, lse):
        yield running, None
    for scores, values in zip(tiles[::2], tiles[1::2], strict=True):
        yield scores, tiled_output_scores_back(scores, values, lse, y, dy)
        yield values, tiled_output_values_back(scores, lse, dy, heads=values.shape[1])


def _scores_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    scores, values, lse, _, dz = shapes
    arriving, row = einsum.reads(index, (dz, values), {"spec": SCORES}).boxes
    boxes = (same_cell(index, scores), row, same_cell(index, lse), arriving, arriving)
    return Reads(boxes, attrs, zeros(index))


@operation(_scores_back_reads, "{y} = e^({0} - {2}) · (Σ_d {4} {1} - Σ_d {4} {3})")
def tiled_output_scores_back(scores: Any, values: Any, lse: Any, z: Any, dz: Any) -> Any:
    """ds = e^(s − lse) (dz·v − dz·z): `softmax_back` with dp = dz·v."""
    wanted = einsum.forward(dz, values, spec=SCORES)
    return np.exp(scores - _finite(lse)) * (wanted - (dz * z).sum(axis=-1, keepdims=True))


def _values_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    scores, _, dz = shapes
    need = einsum.reads(index, (scores, dz), {"spec": VALUES_BACK, "k": attrs["heads"]})
    column, arriving = need.boxes
    per_row = (*column[:-1], np.array([0]))
    return Reads((column, per_row, arriving), {"heads": 1}, zeros(index))


@operation(_values_back_reads, "{y} = Σ_t e^({0} - {1}) {2}", sizes=("heads",))
def tiled_output_values_back(scores: Any, lse: Any, dz: Any, heads: int) -> Any:
    """dv_j = Σ_t e^(s_tj − lse_t) dz_t, over all queries that read this key."""
    return einsum.forward(np.exp(scores - _finite(lse)), dz, spec=VALUES_BACK, k=heads)
