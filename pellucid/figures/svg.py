"""A figure as SVG, with a background of its own, so that it can be read on light pages and dark ones."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from pellucid.figures.chart import Chart, Figure, Heatmap, LegendKey, Section, Series, color

INK, FAINT, PAPER, RULE, NONE = "#1f2933", "#5f6c7b", "#ffffff", "#d5dbe3", "#e8ebef"
COLORS = ("#2b6cb0", "#d9480f", "#2f855a", "#9b2c86", "#b7791f", "#4a5568", "#5a4fcf", "#c53030")
DASHES = ("none", "7 3", "2 3")
SMALL = f'font-size="11" fill="{FAINT}"'
MARGIN, HEADING, LINE = 16, 34, 20
"""Pixels around a figure, for a heading, and for a line of the legend or the note."""
PAGE, ZOOM = 760, 1.3
"""Pixels for plots beside each other (two charts, each as wide as a telephone), and their scale in a file."""
LONGEST, LETTER = 90, 7.5
"""Letters of a name in the legend, at most, and the pixels of each, about."""
BAR = 60
"""Pixels of the bar that explains the colors of a heatmap."""
SHADES = 16
"""Colors of a heatmap whose cells have no names."""


class Tile(NamedTuple):
    """The pixels around the axes of a plot, and the size of the axes."""

    left: int
    right: int
    above: int
    below: int
    width: int
    height: int

    @property
    def outer(self) -> tuple[int, int]:
        return self.left + self.width + self.right, self.above + self.height + self.below


def tile(section: Section) -> Tile:
    """Returns the measures that all plots of a section share."""
    first = section.plots[0]
    if isinstance(first, Chart):
        return Tile(70, 10, 26, 42, *section.size)
    return Tile(70, 10, 24, 36, *section.size) if first.rows else Tile(0, 28, 34, 12, *section.size)


def write_svg(figure: Figure) -> bytes:
    """Returns the file; its mark is the name of the program in `data-generator`."""
    tiles = [tile(section) for section in figure.sections]
    across = [
        _balance(len(section.plots), PAGE // each.outer[0])
        for section, each in zip(figure.sections, tiles, strict=True)
    ]
    wide = max(n * each.outer[0] for n, each in zip(across, tiles, strict=True))
    wide = max(
        wide, *(round(LETTER * len(s.heading)) for s in figure.sections), round(6.5 * len(figure.note))
    )
    marks, top, keys = [], MARGIN, figure.keys()
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
        svg_tag(width, height, size),
        f"<title>{escape(figure.title)}</title>",
        f'{paper} stroke="{RULE}"/>',
    )
    return "\n".join((*begin, *marks, "</svg>\n")).encode()


def _balance(count: int, most: int) -> int:
    """Returns how many plots to put in a row so that the rows are about equally full.

    >>> _balance(8, 5), _balance(3, 2), _balance(1, 0)
    (4, 2, 1)
    """
    return math.ceil(count / math.ceil(count / max(most, 1)))


def svg_tag(width: float, height: float, more: str = "") -> str:
    """Returns the opening tag of a drawing of this size."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="{INK}" {more}>'
    ).replace(" >", ">")


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'.replace(" >", ">")


def stroke(key: LegendKey) -> str:
    """Returns the attributes of a line in the color and the dash pattern of a key."""
    dash = f' stroke-dasharray="{DASHES[key.dash % len(DASHES)]}"' if key.dash % len(DASHES) else ""
    return f'stroke="{COLORS[key.color % len(COLORS)]}"{dash}'


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


def plot_marks(plot: Chart | Heatmap, id: str, size: Tile, x: int, y: int) -> Iterator[str]:
    """Yields the marks of a plot whose tile begins at x, y; `id` is that of no other plot on the page."""
    left, top = x + size.left, y + size.above
    if isinstance(plot, Chart):
        return _chart(plot, id, size, left, top)
    return (_named_cells if plot.rows else _cells)(plot, size, left, top)


def _chart(chart: Chart, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    right, bottom = left + size.width, top + size.height
    yield text(left, top - 9, chart.title, 'font-weight="bold"')
    yield text(right, top - 9, chart.y.label, f'text-anchor="end" {SMALL}')
    yield text(right, bottom + 32, chart.x.label, f'text-anchor="end" {SMALL}')
    frame = f'<rect x="{left}" y="{top}" width="{size.width}" height="{size.height}"'
    yield f'{frame} fill="none" stroke="{RULE}"/>'
    for words, place in chart.y.ticks():
        y = round(bottom - size.height * place, 1)
        yield f'<path stroke="{RULE}" d="M{left} {y:g}h{size.width}"/>'
        yield text(left - 6, y + 4, words, f'text-anchor="end" {SMALL}')
    for words, place in chart.x.ticks(most=5 if chart.x.high < 1e4 else 3):
        x = round(left + size.width * place, 1)
        yield f'<path stroke="{RULE}" d="M{x:g} {top}v{size.height}"/>'
        anchor = "end" if place > 0.97 else "middle"  # a long number would leave the picture
        yield text(x, bottom + 16, words, f'text-anchor="{anchor}" {SMALL}')
    inside = (
        f'x="{left - 1}" y="{top - 1}" width="{size.width + 2}" height="{size.height + 2}"'  # whole strokes
    )
    yield f'<clipPath id="{id}"><rect {inside}/></clipPath>'
    yield f'<g clip-path="url(#{id})" fill="none" stroke-linejoin="round">'
    for series in chart.series:
        yield from _series(chart, series, size, left, top)
    yield "</g>"
    if not any(len(series.x) for series in chart.series):
        middle = f'text-anchor="middle" fill="{FAINT}"'
        yield text((left + right) / 2, (top + bottom) / 2, "no data", middle)


def _series(chart: Chart, series: Series, size: Tile, left: int, top: int) -> Iterator[str]:
    here = np.isfinite(series.y)
    x = left + size.width * chart.x.place(series.x[here])
    y = top + size.height * np.clip(1 - chart.y.place(series.y[here]), -2, 3)
    if not len(x):
        return
    hue = COLORS[series.key.color % len(COLORS)]
    if series.style == "level":
        dotted = f'stroke="{hue}" stroke-dasharray="1 4" stroke-width="2"'
        yield f'<path {dotted} d="M{left} {y[0]:.1f}h{size.width}"/>'
        if y[0] < top + size.height:
            around = f'stroke="{PAPER}" stroke-width="3" paint-order="stroke"'  # other lines may pass there
            yield text(left + 6, y[0] - 5, series.label, f'fill="{hue}" {around} font-size="11"')
        return
    look = 'stroke-width="1" opacity="0.3"' if series.style == "faint" else 'stroke-width="2"'
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]
    yield f'<polyline {stroke(series.key)} {look} points="{" ".join(points)}"/>'
    if series.style == "points" or len(points) == 1:
        dots = "".join(f"M{point.replace(',', ' ')}h0" for point in points[:200])
        yield f'<path stroke="{hue}" stroke-width="5" stroke-linecap="round" d="{dots}"/>'


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


def hex_color(place: float, scale: str) -> str:
    """Returns the color at a position of a color scale; grey where there is none.

    >>> hex_color(0.0, "log"), hex_color(0.5, "log"), hex_color(math.nan, "log")
    ('#440154', '#21918c', '#e8ebef')
    """
    found = color(place, scale)
    return NONE if found is None else "#" + "".join(f"{part:02x}" for part in found)
