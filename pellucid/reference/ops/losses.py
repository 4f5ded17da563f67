"""Losses: negative log-likelihood of the target and of every token, and the mean squared error."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.reference.op import (
    Attrs,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    each,
    each_and_row,
    everything,
    operation,
    same_cell,
    same_row,
    zeros,
)
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    logits, *per_row = shapes
    boxes = (same_row(index, logits), *(same_cell(index, shape) for shape in per_row))
    return Reads(boxes, attrs, zeros(index))


@operation(_reads, "{y} = {1} - {0} at v = {2}")
def cross_entropy(logits: Any, lse: Any, targets: Any) -> Any:
    """nll = lse − s_target = −ln p_target, [… V] to […], and 0 where the target is IGNORE_INDEX."""
    counted = targets != IGNORE_INDEX
    if (targets[counted] < 0).any():
        raise IndexError(f"targets must be at least 0, or {IGNORE_INDEX}; got {targets[counted].min()}")
    picked = np.take_along_axis(logits, np.where(counted, targets, 0)[..., None], axis=-1)[..., 0]
    return np.where(counted, lse - picked, 0.0)


@cross_entropy.gradient
def _(y: Ref, dy: Ref, logits: Ref, lse: Ref, targets: Ref) -> Gradients:
    """With the part through lse this is p − onehot(target), in two steps."""
    yield logits, cross_entropy_logits_back(dy, targets, width=logits.shape[-1])
    yield lse, cross_entropy_lse_back(dy, targets)


def _target_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    boxes = tuple(same_cell(index[:-1], shape) for shape in shapes)
    return Reads(boxes, attrs | {"first": attrs.get("first", 0) + index[-1], "width": 1}, zeros(index))


@operation(_target_reads, "{y} = -{0} if v = {1}, else 0", sizes=("width",))
def cross_entropy_logits_back(dnll: Any, targets: Any, width: int, first: int = 0) -> Any:
    """ds_i = −dnll where i is the target, else 0."""
    hit = targets[..., None] == np.arange(first, first + width)
    return np.where(hit, -dnll[..., None], 0.0)


@operation(each, "{y} = {0} if {1} ≥ 0, else 0")
def cross_entropy_lse_back(dnll: Any, targets: Any) -> Any:
    """dlse = dnll, and 0 where the target is IGNORE_INDEX."""
    return np.where(targets != IGNORE_INDEX, dnll, 0.0)


@operation(each_and_row, "{y} = {1} - {0}")
def neg_log_probs(logits: Any, lse: Any) -> Any:
    """−ln p_i = lse − s_i for every token i of the vocabulary, [… V]."""
    return lse[..., None] - logits


@neg_log_probs.gradient
def _(y: Ref, dy: Ref, logits: Ref, lse: Ref) -> Gradients:
    every = LETTERS[: len(y.shape)]
    yield logits, einsum(dy, spec=f"{every}->{every}", scale=-1.0)
    yield lse, einsum(dy, spec=f"{every}->{every[:-1]}")


@operation(everything, "{y} = Σ ({0} - {1})² / {samples}")
def mean_squared_error(predicted: Any, target: Any, samples: int) -> Any:
    """L = (1/N) Σ (ŷ − y)², N samples; one number."""
    if predicted.shape != target.shape:
        raise ValueError("predictions and targets differ in shape")
    return ((predicted - target) ** 2).sum() / samples


@mean_squared_error.gradient
def _(y: Ref, dy: Ref, predicted: Ref, target: Ref, samples: int) -> Gradients:
    yield predicted, mean_squared_error_back(predicted, target, dy, samples=samples)
    yield target, mean_squared_error_back(target, predicted, dy, samples=samples)


@operation(each, "{y} = 2 · ({0} - {1}) · {2} / {samples}")
def mean_squared_error_back(predicted: Any, target: Any, dy: Any, samples: int) -> Any:
    """dŷ = (2/N) (ŷ − y) dL."""
    return 2 * (predicted - target) * dy / samples
