"""Feature maps φ of linear attention: the dot product φ(q) · φ(k) takes the place of e^(q · k / √D)."""

import math
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
    all_of,
    each,
    one,
    operation,
    same_cell,
    same_row,
    zeros,
)
from pellucid.reference.ops.einsum import product


@operation(each, "{y} = {0} + 1 if {0} > 0, else e^{0}")
def elu_plus_one(x: Any) -> Any:
    """y = elu(x) + 1: x + 1 where x > 0, else e^x; always positive."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0.0)))


@elu_plus_one.show
def _(x: Any) -> Any:
    return np.where(x > 0, x + 1, np.exp(x))


@elu_plus_one.derivative
@operation(each, "{y} = {1} if {0} > 0, else e^{0} · {1}")
def elu_plus_one_back(x: Any, dy: Any) -> Any:
    """dx = dy where x > 0, else e^x dy."""
    return np.where(x > 0, dy, np.exp(np.minimum(x, 0.0)) * dy)


@elu_plus_one_back.show
def _(x: Any, dy: Any) -> Any:
    return np.where(x > 0, dy, np.exp(x) * dy)


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads a row of x, and one direction."""
    x, directions = shapes
    boxes = (same_row(index[:-1], x), (one(index[-1]), all_of(directions[1])))
    return Reads(boxes, attrs, zeros(index))


@operation(_reads, "{y} = e^(Σ_d {1} {0} · {scale} - Σ_d {0}² · {scale}² / 2) / √{features}")
def random_features(x: Any, directions: Any, scale: float, features: int) -> Any:
    """φ_r = e^(ω_r·x' − |x'|²/2) / √R with x' = scale · x, for x [… D] and directions ω [R D].

    The expectation of φ(x) · φ(y) over ω ~ N(0, I) is e^(x'·y')."""
    rows = "abcefg"[: x.ndim - 1]
    along = product([f"{rows}d", "rd"], f"{rows}r", [x, directions]) * scale
    size = (x**2).sum(axis=-1, keepdims=True) * (0.5 * scale**2)
    return np.exp(along - size) * (1 / math.sqrt(features))


@random_features.gradient
def _(y: Ref, dy: Ref, x: Ref, directions: Ref, scale: float, features: int) -> Gradients:
    yield x, random_features_back(x, directions, y, dy, scale=scale)


def _back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads one channel of x and of every direction, and the rows of φ and dφ."""
    x, directions, y, dy = shapes
    column = (all_of(directions[0]), one(index[-1]))
    rows = (same_row(index[:-1], y), same_row(index[:-1], dy))
    return Reads((same_cell(index, x), column, *rows), attrs, zeros(index))


@operation(_back_reads, "{y} = Σ_r {2} · {3} · ({1} · {scale} - {0} · {scale}²)")
def random_features_back(x: Any, directions: Any, y: Any, dy: Any, scale: float) -> Any:
    """dx = Σ_r φ_r dφ_r (scale · ω_r − scale² · x)."""
    flow = y * dy
    rows = "abcefg"[: x.ndim - 1]
    along = product([f"{rows}r", "rd"], f"{rows}d", [flow, directions]) * scale
    return along - flow.sum(axis=-1, keepdims=True) * (x * scale**2)
