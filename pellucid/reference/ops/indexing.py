"""Selecting and joining: rows by id (embeddings), a range along an axis, concatenation (the cache), and cells
that are given (an edit)."""

import math
from collections.abc import Sequence
from itertools import pairwise
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
    all_of,
    one,
    operation,
    same_cell,
    zeros,
)
from pellucid.reference.ops.einsum import product


def _take_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    (rows, _), ids = shapes
    column = (all_of(rows), one(index[-1]))
    return Reads((column, same_cell(index[:-1], ids)), attrs, zeros(index))


@operation(_take_reads, "{y} = {0} in row {1}")
def take(table: Any, ids: Any) -> Any:
    """y = table[ids], [R C] and [B T] to [B T C]: an embedding lookup, equal to onehot(ids) @ table."""
    if (ids < 0).any():
        raise IndexError(f"ids must be at least 0; got {ids.min()}")
    return table[ids]


@take.gradient
def _(y: Ref, dy: Ref, table: Ref, ids: Ref) -> Gradients:
    yield table, scatter(dy, ids, rows=table.shape[0])


def _scatter_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    _, ids = shapes
    row, column = index
    everywhere = tuple(all_of(size) for size in ids)
    small = attrs | {"first": attrs.get("first", 0) + row, "rows": 1}
    return Reads(((*everywhere, one(column)), everywhere), small, zeros(index))


@operation(_scatter_reads, "{y} = Σ {0} over the positions with this id", sizes=("rows",))
def scatter(dy: Any, ids: Any, rows: int, first: int = 0) -> Any:
    """dW[r] = Σ of dy over the positions whose id is r: the gradient of `take`."""
    flat = ids.reshape(ids.size)
    taken = (flat[:, None] == np.arange(first, first + rows)).astype(dy.dtype)
    return product(["nr", "nc"], "rc", [taken, np.reshape(dy, (ids.size, dy.shape[-1]))])


def _concat_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    axis, offset = attrs["axis"], 0
    boxes: list[Box] = []
    for shape in shapes:
        here = index[axis] - offset
        inside = one(here) if 0 <= here < shape[axis] else np.array([], dtype=int)
        boxes.append(tuple(inside if a == axis else one(i) for a, i in enumerate(index)))
        offset += shape[axis]
    return Reads(tuple(boxes), attrs, zeros(index))


FEW_PARTS = 4
"""Arrays whose concatenation is written out; of more, the one that holds the cell is named."""


def _concat_formula(index: Index, shapes: Sequence[Shape], axis: int) -> str:
    if len(shapes) <= FEW_PARTS:
        return "{y} = " + " then ".join(f"{{{i}}}" for i in range(len(shapes)))
    ends = np.cumsum([shape[axis] for shape in shapes])
    return f"{{y}} = {{{int(np.searchsorted(ends, index[axis], side='right'))}}}"


@operation(_concat_reads, _concat_formula)
def concat(*arrays: Any, axis: int) -> Any:
    """y = the arrays concatenated along an axis."""
    if axis < 0:
        raise ValueError(f"axis must be at least 0; got {axis}")
    return np.concatenate(arrays, axis=axis)


@concat.gradient
def _(y: Ref, dy: Ref, *arrays: Ref, axis: int) -> Gradients:
    start = 0
    for array in arrays:
        yield array, narrow(dy, axis=axis, start=start, length=array.shape[axis])
        start += array.shape[axis]


def _narrow_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    start = {attrs["axis"]: attrs["start"]}
    box = tuple(one(i + start.get(axis, 0)) for axis, i in enumerate(index))
    return Reads((box,), attrs | {"start": 0, "length": 1}, zeros(index))


@operation(_narrow_reads, "{y} = {0} from {start}", sizes=("length",))
def narrow(x: Any, axis: int, start: int, length: int) -> Any:
    """y = `length` entries of x along an axis from `start`, as torch.narrow."""
    return x[(slice(None),) * axis + (slice(start, start + length),)]


@narrow.gradient
def _(y: Ref, dy: Ref, x: Ref, axis: int, start: int, length: int) -> Gradients:
    yield x, narrow_back(dy, axis=axis, start=start, length=length, whole=x.shape[axis])


def _narrow_back_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell inside the range reads its dy; one outside reads any, because `narrow_back` puts 0 there."""
    axis, start, length = attrs["axis"], attrs["start"], attrs["length"]
    here = index[axis] - start
    inside = 0 <= here < length
    box = tuple(one(min(max(here, 0), length - 1)) if a == axis else one(i) for a, i in enumerate(index))
    small = {"axis": axis, "start": 0 if inside else 1, "length": 1, "whole": 1}
    return Reads((box,), small, zeros(index))


@operation(_narrow_back_reads, "{y} = {0} from {start}, else 0", sizes=("length", "whole"))
def narrow_back(dy: Any, axis: int, start: int, length: int, whole: int) -> Any:
    """dx = dy from `start`, and 0 elsewhere."""
    places = np.arange(whole) - start
    inside = (places >= 0) & (places < length)
    spread = (1,) * axis + (whole,) + (1,) * (dy.ndim - axis - 1)
    taken = np.clip(places, 0, length - 1)
    return np.where(np.reshape(inside, spread), dy[(slice(None),) * axis + (taken,)], 0.0)


def find_place(index: Index, shape: Shape) -> int:
    """Returns the place of a cell in storage order.

    >>> find_place((1, 0), (2, 3)), find_place((), ())
    (3, 0)
    """
    return int(np.ravel_multi_index(index, shape)) if shape else 0


def _put_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    given = dict(zip(attrs["places"], attrs["numbers"], strict=True))
    place = find_place(index, shapes[0])
    small = {"places": [0], "numbers": [given[place]]} if place in given else {"places": [], "numbers": []}
    return Reads((same_cell(index, shapes[0]),), small, zeros(index))


def _put_formula(index: Index, shapes: Sequence[Shape], places: list[int], numbers: list[float]) -> str:
    given, place = dict(zip(places, numbers, strict=True)), find_place(index, shapes[0])
    return f"{{y}} = {given[place]:.5g}" if place in given else "{y} = {0}"


def are_cells(shape: Shape, places: Any, numbers: Any) -> bool:
    """Tests whether these are places of an array in ascending order, and a finite number for each."""
    if type(places) is not list or type(numbers) is not list or len(places) != len(numbers):
        return False
    return (
        all(type(place) is int for place in places)
        and all(low < high for low, high in pairwise([-1, *places, math.prod(shape)]))
        and all(isinstance(number, float) and math.isfinite(number) for number in numbers)
    )


@operation(_put_reads, _put_formula)
def put(x: Any, places: list[int], numbers: list[float]) -> Any:
    """y = x with the given numbers at some places, which count the cells in storage order: an edit."""
    if not are_cells(x.shape, places, numbers):
        raise ValueError(f"places {places} and numbers {numbers} do not fit {x.size} cells")
    is_given, given = np.zeros(x.size, dtype=bool), np.zeros(x.size, dtype=x.dtype)
    is_given[places], given[places] = True, numbers
    return np.where(np.reshape(is_given, x.shape), np.reshape(given, x.shape), x)


@put.gradient
def _(y: Ref, dy: Ref, x: Ref, places: list[int], numbers: list[float]) -> Gradients:
    """dx = dy, and 0 at a given cell: nothing depends on what was computed there."""
    yield x, put(dy, places=places, numbers=[0.0] * len(numbers))
