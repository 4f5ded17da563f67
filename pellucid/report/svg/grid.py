"""A grid as SVG: a cell with its number for each row and column, hatched where it is masked."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

import numpy as np

from pellucid.report.chart import color
from pellucid.report.diagram import Grid, format_value
from pellucid.report.svg.marks import (
    FAINT,
    INK,
    LINE,
    MIDDLE,
    NONE,
    ON_BRIGHT,
    ON_DARK,
    PAPER,
    SMALL,
    Tile,
    hex_color,
    line,
    rect,
    text,
    text_width,
    title_marks,
    wrap,
)

CELL, SIDE, GAP = 28, 16, 8
"""Pixels of a cell's height, of the side of a compact grid's, and between a text and what it belongs to."""
BRIGHT = 400
"""The sum of red, green and blue above which a color is bright."""


def grid_tile(grid: Grid, size: tuple[int, int]) -> Tile:
    """Returns the room that the title, the labels and the cells need."""
    if grid.is_compact:
        return compact_tile(grid)
    left, cell = _row_labels(grid), _cell_width(grid)
    width = left + cell * len(grid.columns)
    lines = wrap(grid.title, max(width, 150), is_bold=True)
    width = max([width, left + text_width(grid.column_label, 11), *(text_width(x, 12, True) for x in lines)])
    above = LINE * len(lines) + (LINE if grid.column_label or grid.row_label else 0) + LINE + GAP
    below = LINE + GAP if grid.is_masked.any() else GAP
    return Tile(0, 20, 0, 0, round(width), above + CELL * len(grid.rows) + below)


def _row_labels(grid: Grid) -> float:
    names = [text_width(name) for name in grid.rows]
    return max([0.0, text_width(grid.row_label, 11), *names]) + GAP


def _cell_width(grid: Grid) -> float:
    shown = [grid.cell_text(i, j) for i in range(len(grid.rows)) for j in range(len(grid.columns))]
    return max(CELL, *(text_width(words) + 14 for words in (*shown, *grid.columns)))


def grid_marks(grid: Grid, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the title, the names of columns and rows, the cells, and the frames around some of them."""
    if grid.is_compact:
        yield from compact_marks(grid, left, top)
        return
    cell, x0 = _cell_width(grid), left + _row_labels(grid)
    lines = wrap(grid.title, max(x0 - left + cell * len(grid.columns), 150), is_bold=True)
    yield from title_marks(lines, left, top)
    y = top + LINE * len(lines)
    if grid.column_label or grid.row_label:
        yield text(x0, y + 12, grid.column_label, SMALL)
        y += LINE
    yield text(x0 - GAP, y + 12, grid.row_label, f'text-anchor="end" {SMALL}')
    for j, name in enumerate(grid.columns):
        yield text(x0 + cell * (j + 0.5), y + 12, name, MIDDLE)
    y += LINE + GAP // 2
    for i, name in enumerate(grid.rows):
        yield text(x0 - GAP, y + CELL * (i + 0.5) + 4, name, 'text-anchor="end"')
        for j in range(len(grid.columns)):
            yield from _cell(grid, i, j, x0 + cell * j, y + CELL * i, cell)
    for frame in grid.frames:
        (first, end), (start, stop) = frame.rows, frame.columns
        box = x0 + cell * start + 3, y + CELL * first + 3, cell * (stop - start) - 6, CELL * (end - first) - 6
        yield rect(*box, f'rx="6" fill="none" stroke="{INK}" stroke-width="2.5"')
    if grid.is_masked.any():
        y += CELL * len(grid.rows) + GAP
        yield from _hatch(x0, y, 20, 12)
        yield text(x0 + 28, y + 10, grid.masked_label, SMALL)


def _cell(grid: Grid, row: int, column: int, x: float, y: float, width: float) -> Iterator[str]:
    if grid.is_masked[row, column]:
        yield from _hatch(x, y, width, CELL)
        return
    place = float(grid.places()[row, column])
    shade = color(place, grid.scale) if grid.scale != "none" else None
    fill, ink = f'fill="{PAPER}"', ""
    if shade:
        fill = f'fill="{hex_color(place, grid.scale)}"'
        ink = f' fill="{ON_BRIGHT if sum(shade) > BRIGHT else ON_DARK}"'
    if grid.texts:  # the number is shown under the pointer
        yield f"<g><title>{format_value(grid.values[row, column], grid.decimals)}</title>"
    yield rect(x, y, width, CELL, f'{fill} stroke="{FAINT}"')
    yield text(x + width / 2, y + CELL / 2 + 4, grid.cell_text(row, column), f"{MIDDLE}{ink}")
    yield from ["</g>"] if grid.texts else []


def _hatch(x: float, y: float, width: float, height: float) -> Iterator[str]:
    """Yields a rectangle with parallel diagonals."""
    yield rect(x, y, width, height, f'fill="{NONE}" stroke="{FAINT}"')
    for start in np.arange(-height, width, 8):
        begin, end = max(start, 0), min(start + height, width)
        if end > begin:
            low = y + height - (begin - start), y + height - (end - start)
            yield line(x + begin, low[0], x + end, low[1], f'stroke="{FAINT}" stroke-width="0.7"')


# ---- compact: small cells that say their numbers under the pointer, and a color bar


SIZE = 11
"""The size of the labels' letters."""
BAR = 60
"""Pixels of the color bar."""
NARROWEST = 150
"""Pixels of the narrowest grid, so that its title has room."""


def compact_tile(grid: Grid) -> Tile:
    """Returns the room that the title, the labels, the cells and the color bar need."""
    width = max(_compact_labels(grid) + max(SIDE * len(grid.columns), _bar_width(grid)), NARROWEST)
    lines = wrap(grid.title, width, is_bold=True)
    width = max([width, *(text_width(words, 12, True) for words in lines)])
    height = LINE * len(lines) + _above(grid) + SIDE * len(grid.rows) + GAP + LINE + GAP
    return Tile(0, 20, 0, 0, round(width), round(height))


def _compact_labels(grid: Grid) -> float:
    return max([text_width(grid.row_label, SIZE), *(text_width(name, SIZE) for name in grid.rows)]) + GAP


def _is_upright(grid: Grid) -> bool:
    """Returns whether the names of the columns fit above their cells, and need not be turned by a right
    angle."""
    return all(text_width(name, SIZE) <= SIDE - 1 for name in grid.columns)


def _above(grid: Grid) -> float:
    """Returns the pixels of the names of the columns, and of the axes."""
    longest = max((text_width(name, SIZE) for name in grid.columns), default=0.0)
    return LINE + GAP + (SIZE if _is_upright(grid) else longest)


def _bar_texts(grid: Grid) -> tuple[str, str, str]:
    low, high = (format_value(value, max(grid.decimals, 2)) for value in grid.limits())
    return low, high, grid.masked_label if grid.is_masked.any() else ""


def _bar_width(grid: Grid) -> float:
    low, high, masked = _bar_texts(grid)
    hidden = 2 * GAP + SIDE + text_width(masked, SIZE) if masked else 0.0
    return text_width(low, SIZE) + text_width(high, SIZE) + BAR + 2 * GAP + hidden


def compact_marks(grid: Grid, left: int, top: int) -> Iterator[str]:
    """Yields the title, the labels, a cell for each row and column that is not masked, and the color bar."""
    side = _compact_labels(grid)
    x0 = left + side
    width = max(side + max(SIDE * len(grid.columns), _bar_width(grid)), NARROWEST)
    lines = wrap(grid.title, width, is_bold=True)
    yield from title_marks(lines, left, top)
    y = top + LINE * len(lines)
    yield text(x0, y + 12, grid.column_label, SMALL)
    y0 = y + _above(grid)
    yield text(x0 - GAP, y0 - GAP, grid.row_label, f'text-anchor="end" {SMALL}')
    for j, name in enumerate(grid.columns):
        yield _column_label(name, x0 + SIDE * (j + 0.5), y0 - GAP / 2, _is_upright(grid))
    size = SIDE * len(grid.columns), SIDE * len(grid.rows)
    yield rect(x0, y0, *size, f'fill="{NONE}"')
    yield '<g shape-rendering="crispEdges">'
    places, is_masked = grid.places(), grid.is_masked
    for i, name in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            if not is_masked[i, j]:
                words = f"{grid.row_label} {name}, {grid.column_label} {column}: {grid.values[i, j]:.4g}"
                fill = f'fill="{hex_color(places[i, j], grid.scale)}"' if grid.scale != "none" else ""
                cell = rect(x0 + SIDE * j, y0 + SIDE * i, SIDE, SIDE, fill)
                yield f"{cell.removesuffix('/>')}><title>{escape(words)}</title></rect>"
    yield "</g>"
    yield rect(x0, y0, *size, f'fill="none" stroke="{FAINT}"')
    for i, name in enumerate(grid.rows):
        yield text(x0 - GAP, y0 + SIDE * (i + 0.5) + 4, name, f'text-anchor="end" font-size="{SIZE}"')
    for frame in grid.frames:
        (first, end), (start, stop) = frame.rows, frame.columns
        box = (
            x0 + SIDE * start,
            y0 + SIDE * first,
            SIDE * (stop - start),
            SIDE * (end - first),
        )
        yield rect(*box, f'fill="none" stroke="{INK}" stroke-width="2.5"')
    yield from _color_bar(grid, x0, y0 + size[1] + GAP)


def _column_label(name: str, x: float, y: float, is_upright: bool) -> str:
    if is_upright:
        return text(x, y, name, f'text-anchor="middle" font-size="{SIZE}"')
    at = f"{x + 4:g} {y:g}"
    return text(x + 4, y, name, f'font-size="{SIZE}" transform="rotate(-90 {at})"')


def _color_bar(grid: Grid, x: float, y: float) -> Iterator[str]:
    """Yields the color scale with the values at its ends, and what a cell without a color means."""
    low, high, masked = _bar_texts(grid)
    yield text(x, y + 12, low, SMALL)
    x += text_width(low, SIZE) + GAP
    for i in range(BAR if grid.scale != "none" else 0):
        yield rect(x + i, y + 3, 1.4, 10, f'fill="{hex_color(i / (BAR - 1), grid.scale)}"')
    x += BAR + GAP
    yield text(x, y + 12, high, SMALL)
    if masked:
        x += text_width(high, SIZE) + 2 * GAP
        yield rect(x, y + 2, SIDE - 4, SIDE - 4, f'fill="{NONE}" stroke="{FAINT}"')
        yield text(x + SIDE, y + 12, masked, SMALL)
