"""Rows on a number line as SVG: points with their numbers, one line below the other."""

from collections.abc import Iterator

import numpy as np

from pellucid.report.diagram import NumberLine, NumberRow, format_value
from pellucid.report.svg.marks import (
    FAINT,
    HALO,
    INK,
    LINE,
    MIDDLE,
    PAPER,
    SMALL,
    Tile,
    dot,
    line,
    rect,
    symbol_text,
    text,
    text_width,
    title_marks,
    wrap,
)

ROOM, MARGIN = 300, 24
"""Pixels of the axis, and beside it."""
LEVEL = 14
"""Pixels of a line of labels above the points."""
BELOW = 46
"""Pixels below a line, for its ticks and its mean."""


def number_line_tile(lines: NumberLine, size: tuple[int, int]) -> Tile:
    """Returns the room for the title, and for each row its name, its labels and its line."""
    height = sum(_height(lines, row) for row in lines.rows)
    titles = LINE * len(wrap(lines.title, ROOM + 2 * MARGIN, is_bold=True))
    return Tile(0, 10, 0, 0, ROOM + 2 * MARGIN, titles + round(height) + (LINE if lines.axis.label else 0))


def _height(lines: NumberLine, row: NumberRow) -> float:
    levels = [level for _, _, level in _labels(lines, row)]
    return LINE + LEVEL * (1 + max(levels, default=0)) + 10 + BELOW


def _labels(lines: NumberLine, row: NumberRow) -> list[tuple[float, str, int]]:
    """Returns the place of each distinct value, the label of its entries, and how many lines above the
    points it stands so that no two labels overlap."""
    found: list[tuple[float, str, int]] = []
    ends: list[float] = []  # where the last label of each line ends
    for value in sorted(set(np.ravel(row.values).tolist())):
        number = format_value(value, lines.decimals)
        here = [i for i, other in enumerate(np.ravel(row.values)) if other == value]
        words = (
            f"{', '.join(row.labels[i] for i in here)}: {number}"
            if row.labels
            else ", ".join([number] * len(here))
        )
        x = ROOM * float(lines.axis.place(value))
        half = text_width(words, 11) / 2
        x = min(max(x, half - MARGIN), ROOM + MARGIN - half)
        level = next((i for i, end in enumerate(ends) if end + 6 <= x - half), len(ends))
        ends[level : level + 1] = [x + half]
        found.append((x, words, level))
    return found


def number_line_marks(lines: NumberLine, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the title, then each row: its name, its points under their numbers, its ticks and its mean."""
    titles = wrap(lines.title, ROOM + 2 * MARGIN, is_bold=True)
    yield from title_marks(titles, left, top)
    x0, at, bottoms = left + MARGIN, float(top + LINE * len(titles)), list[float]()
    for row in lines.rows:
        at += _height(lines, row)
        bottoms.append(at - BELOW)
    places = [x0 + ROOM * lines.axis.place(np.ravel(row.values)) for row in lines.rows]
    for i in range(len(places) - 1):
        for a, b in zip(places[i], places[i + 1], strict=False):
            yield line(a, bottoms[i], b, bottoms[i + 1], f'stroke="{FAINT}" stroke-dasharray="2 3"')
    for row, bottom, xs in zip(lines.rows, bottoms, places, strict=True):
        labels = _labels(lines, row)
        above = bottom - 10 - LEVEL * (1 + max((level for _, _, level in labels), default=0))
        yield symbol_text(left, above - 2, row.name, HALO)
        yield line(x0 - 8, bottom, x0 + ROOM + 8, bottom, f'stroke="{INK}" stroke-width="1.2"')
        for words, place in lines.axis.ticks():
            x = x0 + ROOM * place
            yield line(x, bottom - 4, x, bottom + 4, f'stroke="{FAINT}"')
            yield symbol_text(x, bottom + 21, words, f"{MIDDLE} {SMALL} {HALO}")
        for x, words, level in labels:
            half, baseline = text_width(words, 11) / 2, bottom - 10 - LEVEL * level
            yield rect(x0 + x - half, baseline - 10, 2 * half, 13, f'fill="{PAPER}"')
            yield symbol_text(x0 + x, baseline, words, f'{MIDDLE} font-size="11"')
        for x in sorted(set(xs.tolist())):
            yield dot(x, bottom)
        if row.mean is not None:
            x = x0 + ROOM * float(lines.axis.place(row.mean))
            yield f'<path fill="{INK}" d="M{x:.1f} {bottom + 3:g}l-4.5 7h9z"/>'
            words = f"mean {format_value(row.mean, lines.decimals)}"
            half = text_width(words, 11) / 2
            x = min(max(x, left + half), x0 + ROOM + MARGIN - half)
            yield symbol_text(x, bottom + 36, words, f'{MIDDLE} font-size="11" {HALO}')
    if lines.axis.label:
        yield text(x0 + ROOM, bottoms[-1] + BELOW + 8, lines.axis.label, f'text-anchor="end" {SMALL}')
