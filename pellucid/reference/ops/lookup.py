"""Rows by number: embeddings, learned positions, and where their gradients land."""

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
    """y = the row of the table with that number; the same as a one-hot row times the table."""
    if (ids < 0).any():
        raise IndexError(f"rows count from 0, and {ids.min()} was asked for")
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


@operation(_scatter_reads, "{y} = Σ {0} over the places that took this row", sizes=("rows",))
def scatter(dy: Any, ids: Any, rows: int, first: int = 0) -> Any:
    """dW[r] = Σ of dy over the places whose id is r: the gradient of `take`."""
    flat = ids.reshape(ids.size)
    taken = (flat[:, None] == np.arange(first, first + rows)).astype(dy.dtype)
    return product(["nr", "nc"], "rc", [taken, np.reshape(dy, (ids.size, dy.shape[-1]))])
