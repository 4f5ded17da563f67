"""A window on a value: a table over its last two axes, small enough to read, and the addresses around it.

Windows tile a value, so that all cells of one tile are shown in the same table. With n places to a tile, the
tile of index i begins at n · ⌊i / n⌋; the last one begins early enough to be full.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from pellucid.explanation.trace import Trace, format_index
from pellucid.reference.op import Array, Index

ROWS, COLS = 9, 8
"""Rows and columns of a window where the reader asks for no others."""

Marks = tuple[int, int, int, int]
"""The first and last row, the first and last column, inclusive, counted within a window."""


@dataclass(frozen=True)
class TableWindow:
    """The part of a value that begins at the cell `first`, of at most `most_rows` × `most_cols` numbers.

    The rows are the axis before the last and the columns the last one; of a matrix that the formulas use
    transposed (`is_turned`) it is the other way around. A vector is one row.
    """

    trace: Trace
    name: str
    first: Index
    most_rows: int = ROWS
    most_cols: int = COLS

    @cached_property
    def is_turned(self) -> bool:
        return len(self.first) == 2 and self.trace.about(self.name).transposed

    @property
    def row(self) -> int | None:
        """The number of the axis that the rows are; None where there is none."""
        rank = len(self.first)
        return None if rank < 2 else rank - 1 if self.is_turned else rank - 2

    @property
    def col(self) -> int | None:
        """The number of the axis that the columns are; None for a scalar."""
        rank = len(self.first)
        return None if rank < 1 else rank - 2 if self.is_turned else rank - 1

    @property
    def rows(self) -> range:
        """The indices of the rows."""
        return self._find_places(self.row, self.most_rows)

    @property
    def cols(self) -> range:
        """The indices of the columns."""
        return self._find_places(self.col, self.most_cols)

    def _find_places(self, axis: int | None, most: int) -> range:
        if axis is None:
            return range(1)
        start = self.first[axis]
        return range(start, min(start + most, self.trace.value(self.name).shape[axis]))

    @property
    def numbers(self) -> Array:
        """The numbers, [rows, cols]: a view, never a copy of the whole value."""
        return self.select(self.trace.value(self.name))

    def select(self, value: Array) -> Array:
        """Returns the numbers of another value of the same shape that stand in this window."""
        at: list[int | slice] = list(self.first)
        for axis, places in ((self.row, self.rows), (self.col, self.cols)):
            if axis is not None:
                at[axis] = slice(places.start, places.stop)
        part: Array = value[tuple(at)]
        return part.T if self.is_turned else part.reshape(len(self.rows), len(self.cols))

    @property
    def address(self) -> str:
        """The address of the first cell."""
        return self.trace.address(self.name, self.first)

    @property
    def template(self) -> str:
        """The address of a cell, with {row} and {col} for its indices; axes of length 1 are omitted."""
        places: list[int | str] = list(self.first)
        for axis, word in ((self.row, "{row}"), (self.col, "{col}")):
            if axis is not None:
                places[axis] = word
        about, shape = self.trace.about(self.name), self.trace.value(self.name).shape
        entries = zip(about.axes, places, shape, strict=True)
        return self.name + format_index([(axis, i) for axis, i, size in entries if size > 1])  # type: ignore[misc]

    def find_place(self, index: Index) -> tuple[int, int] | None:
        """Returns the row and column of a cell within the window; None where it is not in view."""
        place = []
        for number, i in enumerate(index):
            if number not in (self.row, self.col) and i != self.first[number]:
                return None
        for axis, places in ((self.row, self.rows), (self.col, self.cols)):
            if axis is not None and index[axis] not in places:
                return None
            place.append(0 if axis is None else index[axis] - places.start)
        return place[0], place[1]

    def find_marks(self, rows: range, cols: range) -> Marks | None:
        """Returns the marks around these rows and columns of the value, as far as they are in view."""
        top, bottom = max(rows.start, self.rows.start), min(rows.stop, self.rows.stop)
        left, right = max(cols.start, self.cols.start), min(cols.stop, self.cols.stop)
        if top >= bottom or left >= right:
            return None
        y, x = self.rows.start, self.cols.start
        return top - y, bottom - 1 - y, left - x, right - 1 - x

    def find_neighbors(self) -> dict[str, "TableWindow | None"]:
        """Returns the windows `up`, `down`, `left` and `right` of this one; None at an edge."""
        return {
            "up": self._move(self.row, self.rows.start - 1),
            "down": self._move(self.row, self.rows.stop),
            "left": self._move(self.col, self.cols.start - 1),
            "right": self._move(self.col, self.cols.stop),
        }

    def _move(self, axis: int | None, to: int) -> "TableWindow | None":
        """Returns the window, along one axis, of the tile that holds the index `to`."""
        if axis is None or not 0 <= to < (size := self.trace.value(self.name).shape[axis]):
            return None
        start = find_start(to, size, self.most_rows if axis == self.row else self.most_cols)
        return replace(self, first=(*self.first[:axis], start, *self.first[axis + 1 :]))


def find_start(i: int, size: int, most: int) -> int:
    """Returns where the tile of index i begins on an axis of this size.

    >>> [find_start(i, 20, 8) for i in (0, 7, 8, 15, 16, 19)], find_start(5, 6, 8)
    ([0, 0, 8, 8, 12, 12], 0)
    """
    return min(i // most * most, max(0, size - most))


def find_window(trace: Trace, name: str, index: Index, rows: int = ROWS, cols: int = COLS) -> TableWindow:
    """Returns the window whose tile holds a cell: the whole value where it fits."""
    window, shape = TableWindow(trace, name, index, rows, cols), trace.value(name).shape
    first = list(index)
    for axis, most in ((window.row, rows), (window.col, cols)):
        if axis is not None:
            first[axis] = find_start(index[axis], shape[axis], most)
    return replace(window, first=tuple(first))
