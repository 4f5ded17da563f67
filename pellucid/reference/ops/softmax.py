"""Softmax and log-sum-exp: scores in, probabilities and the log of their normalizer out."""

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
    each_and_row,
    operation,
    rows,
    same_row,
    zeros,
)


def row_max(scores: Any) -> Any:
    """Returns the largest score of each row, or 0 where all are −∞: subtracting it changes no probability."""
    largest = scores.max(axis=-1, keepdims=True)
    return np.where(np.isfinite(largest), largest, 0.0)


@operation(rows, "{y} = e^{0} / Σ_{row} e^{r0}")
def softmax(scores: Any) -> Any:
    """p_i = e^{s_i} / Σ_j e^{s_j} along the last axis; a row of −∞ gives zeros."""
    exps = np.exp(scores - row_max(scores))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total > 0, total, 1.0)


@softmax.show
def _(scores: Any) -> Any:
    exps = np.exp(scores)
    return exps / exps.sum(axis=-1, keepdims=True)


@softmax.gradient
def _(y: Ref, dy: Ref, scores: Ref) -> Gradients:
    yield scores, softmax_back(y, dy)


@operation(rows, "{y} = {0} · ({1} - Σ_{row} {r0} · {r1})")
def softmax_back(p: Any, dp: Any) -> Any:
    """ds_i = p_i (dp_i − Σ_j p_j dp_j)."""
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


def _row_to_one(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell […] reads the row of every input that it is one number of: `reduced_row` without keepdims."""
    return Reads(tuple(same_row(index, shape) for shape in shapes), attrs, zeros(index))


@operation(_row_to_one, "{y} = ln Σ_{row} e^{r0}")
def logsumexp(scores: Any) -> Any:
    """lse = ln Σ_j e^{s_j} along the last axis, [… V] to […]."""
    largest = row_max(scores)
    return np.log(np.exp(scores - largest).sum(axis=-1)) + largest[..., 0]


@logsumexp.show
def _(scores: Any) -> Any:
    return np.log(np.exp(scores).sum(axis=-1))


@logsumexp.gradient
def _(y: Ref, dy: Ref, scores: Ref) -> Gradients:
    yield scores, logsumexp_back(scores, y, dy)


@operation(each_and_row, "{y} = e^({0} - {1}) · {2}")
def logsumexp_back(scores: Any, lse: Any, dlse: Any) -> Any:
    """ds_i = e^{s_i − lse} dlse: the softmax probability times dlse."""
    return np.exp(scores - lse[..., None]) * dlse[..., None]
