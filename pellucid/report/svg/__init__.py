"""A figure as SVG, with a background of its own, so that it can be read on light pages and dark ones."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from pellucid.report.chart import Chart, Heatmap, LegendKey
from pellucid.report.diagram import Bars, Graph, Grid, Histogram, NumberLine
from pellucid.report.figure import Figure, Plot, Section
from pellucid.report.svg.bars import bars_marks, bars_tile
from pellucid.report.svg.chart import chart_marks, chart_tile
from pellucid.report.svg.graph import graph_marks, graph_tile
from pellucid.report.svg.grid import grid_marks, grid_tile
from pellucid.report.svg.heatmap import heatmap_marks, heatmap_tile
from pellucid.report.svg.histogram import histogram_marks, histogram_tile
from pellucid.report.svg.marks import FAINT, PAPER, RULE, Tile, stroke, svg_tag, text
from pellucid.report.svg.number_line import number_line_marks, number_line_tile

MARGIN, HEADING, LINE = 16, 34, 20
"""Pixels around a figure, for a heading, and for a line of the legend or the note."""
ZOOM = 1.3
"""The scale of a figure in a file."""
LONGEST, LETTER = 90, 7.5
"""Letters of a name in the legend, at most, and the pixels of each, about."""


class Drawer(NamedTuple):
    """How one kind of plot is drawn: its measures, and its marks."""

    tile: Callable[[Any, tuple[int, int]], Tile]
    marks: Callable[[Any, str, Tile, int, int], Iterator[str]]


KINDS = {
    Chart: Drawer(chart_tile, chart_marks),
    Heatmap: Drawer(heatmap_tile, heatmap_marks),
    Grid: Drawer(grid_tile, grid_marks),
    Bars: Drawer(bars_tile, bars_marks),
    Histogram: Drawer(histogram_tile, histogram_marks),
    NumberLine: Drawer(number_line_tile, number_line_marks),
    Graph: Drawer(graph_tile, graph_marks),
}


def tile(section: Section) -> Tile:
    """Returns the measures that all plots of a section share."""
    tiles = [KINDS[type(plot)].tile(plot, section.size) for plot in section.plots]
    return Tile(*map(max, zip(*tiles, strict=True)))


def write_svg(figure: Figure) -> bytes:
    """Returns the file; its mark is the name of the program in `data-generator`."""
    tiles = [tile(section) for section in figure.sections]
    across = [
        _balance(len(section.plots), figure.width // each.outer[0])
        for section, each in zip(figure.sections, tiles, strict=True)
    ]
    wide = max(n * each.outer[0] for n, each in zip(across, tiles, strict=True))
    wide = max(
        wide, *(round(LETTER * len(s.heading)) for s in figure.sections), round(6.5 * len(figure.note))
    )
    marks, top, keys = [], MARGIN, list(filter(has_name, figure.keys()))
    for i, (section, each, n) in enumerate(zip(figure.sections, tiles, across, strict=True)):
        if section.heading:
            marks.append(text(MARGIN, top + 16, section.heading, 'font-size="14" font-weight="bold"'))
            top += HEADING
        if i == 0 and keys:
            marks += _legend(keys, wide, top)
            top += LINE * math.ceil(len(keys) / _columns(keys, wide)) + 8
        for j, plot in enumerate(section.plots):
            x, y = MARGIN + j % n * each.outer[0], top + j // n * each.outer[1]
            marks += plot_marks(plot, f"plot-{i}-{j}", each, x, y)
        top += math.ceil(len(section.plots) / n) * each.outer[1]
    if figure.note:
        top += LINE
        marks.append(text(MARGIN, top - 8, figure.note, f'fill="{FAINT}"'))
    width, height = wide + 2 * MARGIN, top + MARGIN
    size = f'width="{ZOOM * width:g}" height="{ZOOM * height:g}" data-generator="pellucid plot"'
    paper = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{PAPER}"'
    begin = (
        svg_tag(width, height, size + (' role="img"' if figure.alt else "")),
        f"<title>{escape(figure.title)}</title>",
        *([f"<desc>{escape(figure.alt)}</desc>"] if figure.alt else []),
        f'{paper} stroke="{RULE}"/>',
    )
    return "\n".join((*begin, *marks, "</svg>\n")).encode()


def _balance(count: int, most: int) -> int:
    """Returns how many plots to put in a row so that the rows are about equally full.

    >>> _balance(8, 5), _balance(3, 2), _balance(1, 0)
    (4, 2, 1)
    """
    return math.ceil(count / math.ceil(count / max(most, 1)))


def has_name(key: LegendKey) -> bool:
    """Returns whether a key is listed in the legend."""
    return bool(key.name)


def _columns(keys: Sequence[LegendKey], wide: int) -> int:
    return max(1, min(len(keys), wide // _key_width(keys)))


def _key_width(keys: Sequence[LegendKey]) -> int:
    return 50 + round(LETTER * min(max(len(key.name) for key in keys), LONGEST))


def _legend(keys: Sequence[LegendKey], wide: int, top: int) -> Iterator[str]:
    for i, key in enumerate(keys):
        row, column = divmod(i, _columns(keys, wide))
        x, y = MARGIN + column * _key_width(keys), top + 8 + LINE * row
        yield f'<path fill="none" {stroke(key)} stroke-width="2" d="M{x} {y}h22"/>'
        yield text(x + 30, y + 4, key.name if len(key.name) <= LONGEST else f"…{key.name[1 - LONGEST :]}")


def plot_marks(plot: Plot, id: str, size: Tile, x: int, y: int) -> Iterator[str]:
    """Yields the marks of a plot whose tile begins at x, y; `id` is that of no other plot on the page."""
    return KINDS[type(plot)].marks(plot, id, size, x + size.left, y + size.above)
