"""The differences of two traces: the largest of each value, and where it stands."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pellucid.explanation.reuse import find_other_chunks
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index

MOST_LISTED = 200


class ValueDifference(NamedTuple):
    """The largest difference of a value between two traces: its size, its cell, and the number in each."""

    name: str
    most: float
    cell: Index
    a: float
    b: float


def find_differences(a: Trace, b: Trace) -> Iterator[ValueDifference]:
    """Yields the largest difference of each value that both have in one shape, in the order of `b`; a value
    with the same bits has none."""
    for name, there in b.tape.values.items():
        here = a.tape.values.get(name)
        if here is None or here is there or (here.shape, here.dtype) != (there.shape, there.dtype):
            continue
        if (place := _find_largest(here, there)) is not None:
            cell = tuple(int(i) for i in np.unravel_index(place, there.shape))
            numbers = float(here[cell]), float(there[cell])
            yield ValueDifference(name, float(_measure(*map(np.array, numbers))), cell, *numbers)


def _find_largest(a: Array, b: Array) -> int | None:
    """Returns the place of the largest difference in storage order; None where all bits are the same."""
    flat, found, most = (a.reshape(-1), b.reshape(-1)), None, -1.0
    for chunk in find_other_chunks(a, b):
        size = _measure(flat[0][chunk], flat[1][chunk])
        place = int(np.argmax(size))
        if size[place] > most:
            found, most = chunk.start + place, float(size[place])
    return found


def _measure(a: Array, b: Array) -> Array:
    """Returns |a − b|: 0 where both are the same infinity or NaN, and ∞ where one alone is NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.asarray(np.abs(b - a))
    if not np.isnan(size).any():
        return size
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(np.isnan(size), np.where(same, 0.0, np.inf), size)


def list_largest(trace: Trace, found: list[ValueDifference]) -> list[dict[str, Any]]:
    """Returns the values with the largest differences, at most `MOST_LISTED`, in program order."""
    kept = sorted(range(len(found)), key=lambda i: -found[i].most)[:MOST_LISTED]
    return [
        {"name": one.name, "most": one.most, "at": trace.address(one.name, one.cell), "a": one.a, "b": one.b}
        for one in (found[i] for i in sorted(kept))
    ]
