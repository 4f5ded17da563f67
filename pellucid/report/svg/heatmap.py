"""A heatmap as SVG: cells with names that say their values under the pointer, or plain squares."""

import math
from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape

import numpy as np

from pellucid.report.chart import Heatmap
from pellucid.report.svg.marks import SMALL, Tile, hex_color, text

BAR = 60
"""Pixels of the bar that explains the colors of a heatmap."""
SHADES = 16
"""Colors of a heatmap whose cells have no names."""


def heatmap_tile(heatmap: Heatmap, size: tuple[int, int]) -> Tile:
    """Returns the room for the names of the rows, the title and the color bar around cells of this size."""
    return Tile(70, 10, 24, 36, *size) if heatmap.rows else Tile(0, 28, 34, 12, *size)


def heatmap_marks(heatmap: Heatmap, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the cells under the title."""
    return (_named_cells if heatmap.rows else _cells)(heatmap, size, left, top)


def _named_cells(heatmap: Heatmap, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields a cell for each row and column that says its value under the pointer, and the color bar."""
    yield text(left, top - 8, heatmap.title)
    yield from _bar(heatmap, left + size.width, top + size.height + 18)
    edges = left + size.width * heatmap.x.place(heatmap.edges())
    tall = size.height / len(heatmap.rows)
    every = math.ceil(len(heatmap.rows) / (size.height / 13))
    columns = heatmap.columns if heatmap.columns is not None else np.arange(len(edges) - 1)
    places = heatmap.place(heatmap.values)
    yield '<g shape-rendering="crispEdges">'
    for row, name in enumerate(heatmap.rows):
        y = top + row * tall
        if (len(heatmap.rows) - 1 - row) % every == 0:
            yield text(left - 6, y + tall / 2 + 4, name.removeprefix("block "), f'text-anchor="end" {SMALL}')
        for column, (x, end) in enumerate(pairwise(edges)):
            words = f"{name}, {heatmap.x.label} {columns[column]:,.0f}: {heatmap.values[row, column]:.4g}"
            fill = hex_color(places[row, column], heatmap.scale)
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{end - x + 0.4:.1f}" height="{tall + 0.4:.1f}" '
                f'fill="{fill}"><title>{escape(words)}</title></rect>'
            )
    yield "</g>"


def _bar(heatmap: Heatmap, right: int, y: int) -> Iterator[str]:
    """Yields the color scale with the values at its ends, below the right end of a heatmap."""
    least, largest = (f"{value:.3g}" for value in heatmap.limits())
    yield text(right, y, largest, f'text-anchor="end" {SMALL}')
    start = right - 7 * len(largest) - 6 - BAR
    for i in range(BAR):
        place = i / (BAR - 1) if least != largest else 0.5
        fill = hex_color(place, heatmap.scale)
        yield f'<rect x="{start + i}" y="{y - 9}" width="1.4" height="9" fill="{fill}"/>'
    yield text(start - 6, y, least, f'text-anchor="end" {SMALL}')


def _cells(heatmap: Heatmap, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields one path for each color, with a square for each cell that has it."""
    yield text(left, top - 22, heatmap.title, 'font-weight="bold"')
    yield text(left, top - 8, heatmap.subtitle, SMALL)
    side = size.width / heatmap.values.shape[1]
    width = side - (heatmap.scale == "mask")
    levels = np.round(heatmap.place(heatmap.values) * SHADES)
    for level in np.unique(levels):
        square = f"h{width:g}v{width:g}h-{width:g}z"
        path = "".join(
            f"M{left + j * side:g} {top + i * side:g}{square}" for i, j in np.argwhere(levels == level)
        )
        yield f'<path fill="{hex_color(level / SHADES, heatmap.scale)}" d="{path}"/>'
