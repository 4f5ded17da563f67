"""Softmax and log-sum-exp: scores in, probabilities and their normaliser out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import (
    Attrs,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    operation,
    rows,
    same_cell,
    same_row,
    zeros,
)


def _top(scores: Any) -> Any:
    """The largest score of each row, or 0 where all are −∞: subtracting it changes no quotient."""
    top = scores.max(axis=-1, keepdims=True)
    return np.where(np.isfinite(top), top, 0.0)


@operation(rows, "{y} = e^{0} / Σ_{row} e^{r0}")
def softmax(scores: Any) -> Any:
    """p_i = e^{s_i} / Σ_j e^{s_j} along the last axis; a row of −∞ alone gives zeros."""
    powers = np.exp(scores - _top(scores))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total > 0, total, 1.0)


@softmax.show
def _(scores: Any) -> Any:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


@softmax.gradient
def _(y: Ref, dy: Ref, scores: Ref) -> Gradients:
    yield scores, softmax_back(y, dy)


@operation(rows, "{y} = {0} · ({1} - Σ_{row} {r0} · {r1})")
def softmax_back(p: Any, dp: Any) -> Any:
    """ds_i = p_i (dp_i − Σ_j p_j dp_j): a score rises when its probability is wanted more than the
    row's average."""
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


def _row_to_one(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    return Reads(tuple(same_row(index, shape) for shape in shapes), attrs, zeros(index))


@operation(_row_to_one, "{y} = ln Σ_{row} e^{r0}")
def logsumexp(scores: Any) -> Any:
    """ln Σ_j e^{s_j} along the last axis, which goes away."""
    top = _top(scores)
    return np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]


@logsumexp.show
def _(scores: Any) -> Any:
    return np.log(np.exp(scores).sum(axis=-1))


@logsumexp.gradient
def _(y: Ref, dy: Ref, scores: Ref) -> Gradients:
    yield scores, logsumexp_back(scores, y, dy)


def _own_row(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    scores, *per_row = shapes
    boxes = (same_cell(index, scores), *(same_cell(index[:-1], shape) for shape in per_row))
    return Reads(boxes, attrs, zeros(index))


@operation(_own_row, "{y} = e^({0} - {1}) · {2}")
def logsumexp_back(scores: Any, lse: Any, dlse: Any) -> Any:
    """ds_i = e^{s_i − lse} dlse: the softmax probability times what arrives."""
    return np.exp(scores - lse[..., None]) * dlse[..., None]
