"""A compact grid as SVG: small colored cells that say their numbers under the pointer, and a color bar."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from pellucid.report.diagram import Grid, format_value
from pellucid.report.svg.marks import (
    FAINT,
    INK,
    LINE,
    NONE,
    SMALL,
    Tile,
    hex_color,
    rect,
    text,
    text_width,
    title_marks,
    wrap,
)

CELL, GAP = 16, 8
"""Pixels of a cell's side, and between a text and what it belongs to."""
SIZE = 11
"""The size of the labels' letters."""
BAR = 60
"""Pixels of the color bar."""
NARROWEST = 150
"""Pixels of the narrowest grid, so that its title has room."""


def compact_tile(grid: Grid) -> Tile:
    """Returns the room that the title, the labels, the cells and the color bar need."""
    width = max(_row_labels(grid) + max(CELL * len(grid.columns), _bar_width(grid)), NARROWEST)
    lines = wrap(grid.title, width, is_bold=True)
    width = max([width, *(text_width(words, 12, True) for words in lines)])
    height = LINE * len(lines) + _above(grid) + CELL * len(grid.rows) + GAP + LINE + GAP
    return Tile(0, 20, 0, 0, round(width), round(height))


def _row_labels(grid: Grid) -> float:
    return max([text_width(grid.row_label, SIZE), *(text_width(name, SIZE) for name in grid.rows)]) + GAP


def _is_upright(grid: Grid) -> bool:
    """Returns whether the names of the columns fit above their cells, and need not be turned by a right
    angle."""
    return all(text_width(name, SIZE) <= CELL - 1 for name in grid.columns)


def _above(grid: Grid) -> float:
    """Returns the pixels of the names of the columns, and of the axes."""
    longest = max((text_width(name, SIZE) for name in grid.columns), default=0.0)
    return LINE + GAP + (SIZE if _is_upright(grid) else longest)


def _bar_texts(grid: Grid) -> tuple[str, str, str]:
    low, high = (format_value(value, max(grid.decimals, 2)) for value in grid.limits())
    return low, high, grid.masked_label if grid.is_masked.any() else ""


def _bar_width(grid: Grid) -> float:
    low, high, masked = _bar_texts(grid)
    hidden = 2 * GAP + CELL + text_width(masked, SIZE) if masked else 0.0
    return text_width(low, SIZE) + text_width(high, SIZE) + BAR + 2 * GAP + hidden


def compact_marks(grid: Grid, left: int, top: int) -> Iterator[str]:
    """Yields the title, the labels, a cell for each row and column that is not masked, and the color bar."""
    side = _row_labels(grid)
    x0 = left + side
    width = max(side + max(CELL * len(grid.columns), _bar_width(grid)), NARROWEST)
    lines = wrap(grid.title, width, is_bold=True)
    yield from title_marks(lines, left, top)
    y = top + LINE * len(lines)
    yield text(x0, y + 12, grid.column_label, SMALL)
    y0 = y + _above(grid)
    yield text(x0 - GAP, y0 - GAP, grid.row_label, f'text-anchor="end" {SMALL}')
    for j, name in enumerate(grid.columns):
        yield _column_label(name, x0 + CELL * (j + 0.5), y0 - GAP / 2, _is_upright(grid))
    size = CELL * len(grid.columns), CELL * len(grid.rows)
    yield rect(x0, y0, *size, f'fill="{NONE}"')
    yield '<g shape-rendering="crispEdges">'
    places, is_masked = grid.places(), grid.is_masked
    for i, name in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            if not is_masked[i, j]:
                words = f"{grid.row_label} {name}, {grid.column_label} {column}: {grid.values[i, j]:.4g}"
                fill = f'fill="{hex_color(places[i, j], grid.scale)}"' if grid.scale != "none" else ""
                cell = rect(x0 + CELL * j, y0 + CELL * i, CELL, CELL, fill)
                yield f"{cell.removesuffix('/>')}><title>{escape(words)}</title></rect>"
    yield "</g>"
    yield rect(x0, y0, *size, f'fill="none" stroke="{FAINT}"')
    for i, name in enumerate(grid.rows):
        yield text(x0 - GAP, y0 + CELL * (i + 0.5) + 4, name, f'text-anchor="end" font-size="{SIZE}"')
    for frame in grid.frames:
        (first, end), (start, stop) = frame.rows, frame.columns
        box = x0 + CELL * start, y0 + CELL * first, CELL * (stop - start), CELL * (end - first)
        yield rect(*box, f'fill="none" stroke="{INK}" stroke-width="2.5"')
    yield from _bar(grid, x0, y0 + size[1] + GAP)


def _column_label(name: str, x: float, y: float, is_upright: bool) -> str:
    if is_upright:
        return text(x, y, name, f'text-anchor="middle" font-size="{SIZE}"')
    at = f"{x + 4:g} {y:g}"
    return text(x + 4, y, name, f'font-size="{SIZE}" transform="rotate(-90 {at})"')


def _bar(grid: Grid, x: float, y: float) -> Iterator[str]:
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
        yield rect(x, y + 2, CELL - 4, CELL - 4, f'fill="{NONE}" stroke="{FAINT}"')
        yield text(x + CELL, y + 12, masked, SMALL)
