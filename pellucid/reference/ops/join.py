"""Putting arrays end to end, as a cache does, and taking a part out again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import (
    Attrs,
    Box,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    one,
    operation,
    zeros,
)


def _concat_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    axis, offset = attrs["axis"], 0
    boxes: list[Box] = []
    for shape in shapes:
        here = index[axis] - offset
        inside = one(here) if 0 <= here < shape[axis] else np.array([], dtype=int)
        boxes.append(tuple(inside if a == axis else one(i) for a, i in enumerate(index)))
        offset += shape[axis]
    return Reads(tuple(boxes), attrs, zeros(index))


def _concat_formula(index: Index, shapes: Sequence[Shape], axis: int) -> str:
    return "{y} = " + " then ".join(f"{{{i}}}" for i in range(len(shapes)))


@operation(_concat_reads, _concat_formula)
def concat(*arrays: Any, axis: int) -> Any:
    """y = the arrays one after the other along an axis, counted from 0."""
    if axis < 0:
        raise ValueError(f"axes count from 0, and axis={axis}")
    return np.concatenate(arrays, axis=axis)


@concat.gradient
def _(y: Ref, dy: Ref, *arrays: Ref, axis: int) -> Gradients:
    start = 0
    for array in arrays:
        yield array, part(dy, axis=axis, start=start, length=array.shape[axis])
        start += array.shape[axis]


def _part_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    start = {attrs["axis"]: attrs["start"]}
    box = tuple(one(i + start.get(axis, 0)) for axis, i in enumerate(index))
    return Reads((box,), attrs | {"start": 0, "length": 1}, zeros(index))


@operation(_part_reads, "{y} = {0} from {start}", sizes=("length",))
def part(x: Any, axis: int, start: int, length: int) -> Any:
    """y = `length` entries of x along an axis, from `start`."""
    return x[(slice(None),) * axis + (slice(start, start + length),)]


@part.gradient
def _(y: Ref, dy: Ref, x: Ref, axis: int, start: int, length: int) -> Gradients:
    yield x, put_back(dy, axis=axis, start=start, length=length, whole=x.shape[axis])


def _put_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """The cell of the piece that stands here; beside the piece any will do, for it is not taken."""
    axis, start, length = attrs["axis"], attrs["start"], attrs["length"]
    here = index[axis] - start
    inside = 0 <= here < length
    box = tuple(one(min(max(here, 0), length - 1)) if a == axis else one(i) for a, i in enumerate(index))
    small = {"axis": axis, "start": 0 if inside else 1, "length": 1, "whole": 1}
    return Reads((box,), small, zeros(index))


@operation(_put_back_reads, "{y} = {0} from {start}, else 0", sizes=("length", "whole"))
def put_back(dy: Any, axis: int, start: int, length: int, whole: int) -> Any:
    """dx = dy from `start`, and 0 elsewhere."""
    places = np.arange(whole) - start
    inside = (places >= 0) & (places < length)
    spread = (1,) * axis + (whole,) + (1,) * (dy.ndim - axis - 1)
    taken = np.clip(places, 0, length - 1)
    return np.where(np.reshape(inside, spread), dy[(slice(None),) * axis + (taken,)], 0.0)
