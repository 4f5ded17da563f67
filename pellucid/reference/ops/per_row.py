"""Division row by row: each row of numbers by one number of its own."""

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
    each,
    operation,
    same_row,
    zeros,
)


def _divisor(b: Any) -> Any:
    return np.where(b > 0, b, 1.0)


@operation(each, "{y} = {0} / {1}")
def per_row(a: Any, b: Any) -> Any:
    """y = a / b for b [… 1], and 0 where b is 0."""
    return np.where(b > 0, a / _divisor(b), 0.0)


@per_row.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref) -> Gradients:
    yield a, per_row(dy, b)
    yield b, per_row_back(y, dy, b)


def _row_to_keep(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    return Reads(tuple(same_row(index[:-1], shape) for shape in shapes), attrs, zeros(index))


@operation(_row_to_keep, "{y} = -Σ_{row} {r0} · {r1} / {2}")
def per_row_back(y: Any, dy: Any, b: Any) -> Any:
    """db = −Σ_i y_i dy_i / b, and 0 where b is 0."""
    return np.where(b > 0, -(y * dy).sum(axis=-1, keepdims=True) / _divisor(b), 0.0)
