"""Cross-entropy: how surprised the model is by what came."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.names import IGNORE_INDEX
from pellucid.reference.op import (
    Attrs,
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


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    logits, *per_row = shapes
    boxes = (same_row(index, logits), *(same_cell(index, shape) for shape in per_row))
    return Reads(boxes, attrs, zeros(index))


@operation(_reads, "{y} = {1} - {0} at v = {2}")
def cross_entropy(logits: Any, lse: Any, targets: Any) -> Any:
    """nll = lse − s_target = −ln p_target, and 0 where the target is IGNORE_INDEX."""
    counted = targets != IGNORE_INDEX
    if (targets[counted] < 0).any():
        raise IndexError(
            f"targets count from 0 (or are {IGNORE_INDEX}), and {targets[counted].min()} was given"
        )
    wanted = np.take_along_axis(logits, np.where(counted, targets, 0)[..., None], axis=-1)[..., 0]
    return np.where(counted, lse - wanted, 0.0)


@cross_entropy.gradient
def _(y: Ref, dy: Ref, logits: Ref, lse: Ref, targets: Ref) -> Gradients:
    """With the part through lse this is the p − y of the textbooks, in two steps."""
    yield logits, target_back(dy, targets, width=logits.shape[-1])
    yield lse, counted_back(dy, targets)


def _target_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    boxes = tuple(same_cell(index[:-1], shape) for shape in shapes)
    return Reads(boxes, attrs | {"first": attrs.get("first", 0) + index[-1], "width": 1}, zeros(index))


@operation(_target_reads, "{y} = -{0} if v = {1}, else 0", sizes=("width",))
def target_back(dnll: Any, targets: Any, width: int, first: int = 0) -> Any:
    """ds_i = −dnll where i is the target."""
    hit = targets[..., None] == np.arange(first, first + width)
    return np.where(hit, -dnll[..., None], 0.0)


@operation(each, "{y} = {0} if {1} ≥ 0, else 0")
def counted_back(dnll: Any, targets: Any) -> Any:
    """dlse = dnll, and 0 where the target is IGNORE_INDEX."""
    return np.where(targets != IGNORE_INDEX, dnll, 0.0)
