"""The operations of samplers and of the draw: rescaling, filters, the order of tokens, and the drawn token.

They choose a token and are not trained through: none has a gradient.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import (
    Array,
    Attrs,
    Index,
    Reads,
    Shape,
    each,
    operation,
    reduced_row,
    rows,
    same_cell,
    same_row,
    zeros,
)
from pellucid.reference.ops.softmax import row_max
from pellucid.reference.tracked_array import plain

# ---- scores rescaled


@operation(rows, "{y} = ({0} - max_{row} {r0}) / {temperature}")
def temper(scores: Any, temperature: float) -> Any:
    """y = (s − max s) / T along the last axis: the largest is 0, so that no T > 0 overflows."""
    with np.errstate(over="ignore"):
        return (scores - row_max(scores)) / temperature


@operation(each, "{y} = {0} / {penalty}^sign({0}) if {1} = 1, else {0}")
def penalize(scores: Any, marked: Any, penalty: float) -> Any:
    """y = s / θ where s > 0 and s · θ where not, of the marked tokens; the others stay as they are."""
    return np.where(marked, np.where(scores > 0, scores / penalty, scores * penalty), scores)


# ---- tokens removed


@operation(each, "{y} = {0} if {1} ≥ {2}, else -∞")
def keep_at_least(scores: Any, x: Any, bound: Any) -> Any:
    """y = s where x ≥ the bound of the row, [… 1], else −∞."""
    return np.where(x >= bound, scores, -np.inf)


@operation(each, "{y} = {0} if {1} < {bound}, else -∞")
def keep_below(scores: Any, x: Any, bound: float) -> Any:
    """y = s where x < the bound, else −∞."""
    return np.where(x < bound, scores, -np.inf)


# ---- what tokens are compared by


@operation(reduced_row, "{y} = {share} · max_{row} {r0}")
def scaled_max(x: Any, share: float) -> Any:
    """y = share · max x along the last axis, [… V] to [… 1]."""
    return x.max(axis=-1, keepdims=True) * share


@operation(each, "{y} = min({0}, {limit})")
def minimum(x: Any, limit: float) -> Any:
    """y = min(x, limit)."""
    return np.minimum(x, limit)


@operation(reduced_row, "{y} = -Σ_{row} {r0} · ln({r0})")
def entropy(probs: Any) -> Any:
    """H = −Σ_j p_j ln p_j along the last axis, [… V] to [… 1]; a token without probability adds nothing."""
    return (-probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=-1, keepdims=True)


@operation(each, "{y} = -abs(ln({0}) + {1})")
def typicality(probs: Any, entropy: Any) -> Any:
    """y = −|−ln p − H|, the largest where the surprisal is the entropy [… 1]; −∞ where p is 0."""
    surprisal = -np.log(np.where(probs > 0, probs, 1.0))
    apart = np.maximum(surprisal - entropy, entropy - surprisal)
    return np.where(probs > 0, -apart, -np.inf)


def sort_tokens(keys: Any) -> Array:
    """Returns the tokens of each row, those with the largest key first, of equals the smaller id first."""
    return np.argsort(-plain(keys), axis=-1, kind="stable")


@operation(reduced_row, "{y} = number {k} of {r0} in falling order")
def kth_largest(x: Any, k: int) -> Any:
    """y = the k-th largest of a row, the smallest where there are fewer than k; [… V] to [… 1]."""
    place = min(k, x.shape[-1]) - 1
    return np.take_along_axis(x, sort_tokens(x)[..., place : place + 1], axis=-1)


def _mass_formula(index: Index, shapes: Sequence[Shape], limit: float = math.inf) -> str:
    total = "Σ_{row} {r0} before it in rank by {1}, of equals the smaller v first"
    return f"{{y}} = {total}" if limit == math.inf else f"{{y}} = min({{limit}}, {total})"


@operation(rows, _mass_formula)
def mass_before(probs: Any, keys: Any, limit: float = math.inf) -> Any:
    """y_i = Σ_j p_j over the tokens j before i in rank, at most `limit`: the largest key is first, of equals
    the smaller id."""
    order = sort_tokens(keys)
    place = np.argsort(order, axis=-1)
    reached = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
    before = np.where(place > 0, np.take_along_axis(reached, np.maximum(place - 1, 0), axis=-1), 0.0)
    return before if limit == math.inf else np.minimum(limit, before)


# ---- the draw


def _token_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell […] reads its row of the inputs [… V], and its cell of the others."""
    boxes = (same_row(index, s) if len(s) > len(index) else same_cell(index, s) for s in shapes)
    return Reads(tuple(boxes), attrs, zeros(index))


@operation(_token_reads, "{y} = the v whose {1} is the largest up to {u}")
def draw(probs: Any, before: Any, u: float) -> Any:
    """id = the token whose interval [before, before + p) holds u, [… V] to […].

    Where u is not below the total, which rounding may leave below 1, it is the last of the intervals.
    """
    reached = plain(before) + plain(probs)
    largest = np.minimum(u, np.nextafter(reached.max(axis=-1, keepdims=True), -np.inf))
    ids = ((plain(before) <= largest) & (largest < reached)).argmax(axis=-1)[..., None]
    start, share = np.take_along_axis(before, ids, axis=-1), np.take_along_axis(probs, ids, axis=-1)
    return np.where((start <= largest) & (largest < start + share), ids, 0)[..., 0].astype(np.int64)


@operation(_token_reads, "{y} = {0} at v = {1}")
def select(x: Any, ids: Any) -> Any:
    """y = x at the token of the row, [… V] and […] to […]."""
    return np.take_along_axis(x, ids[..., None], axis=-1)[..., 0]


@operation(_token_reads, "{y} = the first v whose {0} is the largest")
def argmax(scores: Any) -> Any:
    """id = the token with the largest score, of equals the smallest id, [… V] to […]."""
    ids = plain(scores).argmax(axis=-1)[..., None]
    is_largest = np.take_along_axis(scores, ids, axis=-1) >= scores.max(axis=-1, keepdims=True)
    return np.where(is_largest, ids, 0)[..., 0].astype(np.int64)
