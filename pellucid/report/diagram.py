"""Diagrams: grids of numbers, bars, histograms, rows on a number line, and graphs of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pellucid.report.chart import Array, Axis

FEW = 2
"""Decimals up to which a number that has no more is printed as it is: 0.5, not 0.5000."""


def format_value(value: float, decimals: int) -> str:
    """Returns a number with this many decimals, shorter where it is exact.

    >>> [format_value(value, 4) for value in (0.33024, 0.5, -2.0, -1e-9, -np.inf)]
    ['0.3302', '0.5', '−2', '0.0000', '−∞']
    """
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "∞" if value > 0 else "−∞"
    short = round(float(value), FEW)
    text = f"{short + 0.0:g}" if abs(short - value) < 1e-12 and abs(value) < 1e6 else f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def format_rows(values: Any, decimals: int) -> list[str]:
    """Returns a number, a row or a matrix as lines: one for each row.

    >>> format_rows(2, 4), format_rows([1, 0.25], 4), format_rows([[1, 0], [0, 1]], 4)
    (['2'], ['(1, 0.25)'], ['(1, 0)', '(0, 1)'])
    """
    array = np.asarray(values, np.float64)
    if array.ndim == 0:
        return [format_value(float(array), decimals)]
    return [
        f"({', '.join(format_value(value, decimals) for value in row)})"
        for row in array.reshape(-1, array.shape[-1])
    ]


@dataclass(frozen=True)
class CellFrame:
    """A frame around some rows and columns of a grid; the end of a range is not part of it."""

    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """values [row column] with the number in each cell, the first row on top: a pattern or a weight matrix.

    A cell that is masked (NaN, or 1 in `masked`) is hatched and has no number. `scale`: "share" shades from
    0 to 1, "signed" from minus to plus the largest magnitude, "none" leaves the cells white. A grid that
    `is_compact` has small cells that say their numbers under the pointer, and a color bar: a map of many
    layers and tokens. With `texts` [row column], a cell shows its text, colored by its number.

    >>> pattern = Grid("P", np.array([[1, np.nan], [0.3302, 0.6698]]), ("A", "B"), ("A", "B"), "query", "key")
    >>> pattern.is_masked.tolist()
    [[False, True], [False, False]]
    """

    title: str
    values: Array
    rows: Sequence[str]
    columns: Sequence[str]
    row_label: str = ""
    column_label: str = ""
    scale: Literal["share", "signed", "none"] = "share"
    masked: Array | None = None
    masked_label: str = "masked"
    frames: Sequence[CellFrame] = ()
    decimals: int = 4
    is_compact: bool = False
    texts: Sequence[Sequence[str]] = ()

    def cell_text(self, row: int, column: int) -> str:
        """Returns what stands in a cell: its text, else its number."""
        if self.texts:
            return self.texts[row][column]
        return format_value(self.values[row, column], self.decimals)

    @property
    def is_masked(self) -> NDArray[np.bool_]:
        """Returns whether each cell is masked, [row column] of booleans."""
        masked = np.zeros(np.shape(self.values)) if self.masked is None else self.masked
        return np.asarray(np.isnan(self.values) | (masked != 0), bool)

    def places(self) -> Array:
        """Returns the position of each value on the color scale, from 0 to 1; NaN without a color."""
        if self.scale == "none":
            return np.full(np.shape(self.values), np.nan)
        finite = np.where(np.isfinite(self.values), self.values, 0.0)
        low, high = self.limits()
        return np.clip((finite - low) / (high - low), 0, 1)

    def limits(self) -> tuple[float, float]:
        """Returns the values at the ends of the color scale."""
        if self.scale == "share":
            return 0.0, 1.0
        shown = np.abs(self.values[np.isfinite(self.values) & ~self.is_masked])
        most = float(shown.max(initial=0.0)) or 1.0
        return -most, most


@dataclass(frozen=True)
class Bars:
    """A bar for each label and group: probabilities of the tokens before and after an update.

    >>> before_after = {"before": np.array([0.2, 0.8]), "after": np.array([0.6, 0.4])}
    >>> Bars("p after B", ("C", "D"), before_after, limits=(0, 1)).range()
    (0.0, 1.0)
    """

    title: str
    labels: Sequence[str]
    groups: Mapping[str, Array]
    axis_label: str = ""
    limits: tuple[float, float] | None = None
    decimals: int = 4

    def range(self) -> tuple[float, float]:
        """Returns the ends of the axis: the given limits, else the least and the largest value with 0."""
        values = np.concatenate([np.zeros(1), *(np.ravel(group) for group in self.groups.values())])
        low, high = self.limits or (values.min(), values.max())
        return (float(low), float(high)) if high > low else (0.0, 1.0)


@dataclass(frozen=True)
class Histogram:
    """A bar for each bin of an axis, of heights [M] between edges [M+1]; NaN where a bin has none.

    Where `expected` [M] is given, the gap between it and each bar is marked, and the line y = x is drawn: a
    reliability diagram, whose bars are accuracies and whose expectations are mean confidences. `names` are
    those of the bars and of what is expected.

    >>> x, y, edges = Axis("confidence", 0, 1), Axis("accuracy", 0, 1), np.array([0, 0.5, 1])
    >>> found = Histogram("reliability", x, y, edges, np.array([0.5, 0.7]), np.array([0.4, 0.9]))
    >>> found.gaps().round(1).tolist()
    [0.1, -0.2]
    """

    title: str
    x: Axis
    y: Axis
    edges: Array
    heights: Array
    expected: Array | None = None
    names: tuple[str, str] = ("", "")

    def gaps(self) -> Array:
        """Returns the height of each bar above what is expected, [M]; 0 where nothing is."""
        return np.zeros(len(self.heights)) if self.expected is None else self.heights - self.expected


@dataclass(frozen=True)
class NumberRow:
    """The entries of a row at their places on a number line, each with its label, and perhaps their mean."""

    name: str
    values: Array
    labels: Sequence[str] = ()
    mean: float | None = None


@dataclass(frozen=True)
class NumberLine:
    """Rows of numbers over one axis, one below the other; an entry is joined with itself in the next row.

    >>> before = NumberRow("X", np.array([0.0, 0.0, 2.0, 2.0]), mean=1.0)
    >>> after = NumberRow("LayerNorm(X)", np.array([-1.0, -1.0, 1.0, 1.0]), mean=0.0)
    >>> NumberLine("a row before and after", Axis("value", -2, 3), (before, after)).rows[1].name
    'LayerNorm(X)'
    """

    title: str
    axis: Axis
    rows: Sequence[NumberRow]
    decimals: int = 4


@dataclass(frozen=True)
class GraphNode:
    """A value in a graph: its symbol, and numbers of at most two axes; the gradient stands below the value.

    `is_given`: a parameter or an input, drawn with a dashed outline.
    """

    name: str
    symbol: str
    value: Any = None
    gradient: Any = None
    is_given: bool = False


@dataclass(frozen=True)
class GraphEdge:
    """An arrow from a value to one that is computed from it, with a short label."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Graph:
    """Values and which is computed from which, in layers from left to right, or from top to bottom.

    >>> x, y = GraphNode("x", "x", 3.0, 6.0, is_given=True), GraphNode("y", "y", 9.0, 1.0)
    >>> Graph("square", (x, y), (GraphEdge("x", "y", "x²"),)).direction
    'right'
    """

    title: str
    nodes: Sequence[GraphNode]
    edges: Sequence[GraphEdge]
    direction: Literal["right", "down"] = "right"
    decimals: int = 4
