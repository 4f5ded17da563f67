"""Bars as SVG: horizontal, each with its number, so that labels of any length stand beside them."""

from collections.abc import Iterator

from pellucid.report.diagram import Bars, format_value
from pellucid.report.svg.marks import (
    COLORS,
    LINE,
    SMALL,
    Tile,
    line,
    rect,
    text,
    text_width,
    title_marks,
    wrap,
)

BAR, GAP = 15, 10
"""Pixels of a bar with the space below it, and between two labels."""
ROOM = 190
"""Pixels of the axis."""


def bars_tile(bars: Bars, size: tuple[int, int]) -> Tile:
    """Returns the room that the title, the legend, the labels and the bars need."""
    left, below, above = _margins(bars)
    height = len(bars.labels) * (BAR * len(bars.groups) + GAP)
    width = left + below + ROOM + above
    lines = LINE * len(wrap(bars.title, width, is_bold=True)) + LINE * len(_legend(bars, width))
    return Tile(0, 20, 0, 0, round(width), lines + GAP + height + (LINE if bars.axis_label else 0) + GAP)


def _margins(bars: Bars) -> tuple[float, float, float]:
    """Returns the room for the labels, for the numbers of negative bars, and for those of the others."""
    values = [value for group in bars.groups.values() for value in group]
    numbers = [text_width(format_value(value, bars.decimals), 11) + 8 for value in values]
    left = max((text_width(label) for label in bars.labels), default=0) + 8
    return left, max(numbers) if min(values) < 0 else 0, max(numbers)


def _legend(bars: Bars, width: float) -> list[list[tuple[int, str]]]:
    """Returns the groups with their names, as many in a line as have room; none for one without a name."""
    lines: list[list[tuple[int, str]]] = [[]]
    used = 0.0
    for i, name in enumerate(bars.groups):
        needs = 26 + text_width(name) + 14
        if lines[-1] and used + needs > width:
            lines.append([])
            used = 0.0
        lines[-1].append((i, name))
        used += needs
    return lines if any(bars.groups) else []


def bars_marks(bars: Bars, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the title, the legend, and for each label a bar of each group with its number."""
    margin, below, above = _margins(bars)
    width = margin + below + ROOM + above
    lines = wrap(bars.title, width, is_bold=True)
    yield from title_marks(lines, left, top)
    y = top + LINE * len(lines)
    for entries in _legend(bars, width):
        x = float(left)
        for i, name in entries:
            yield rect(x, y + 3, 18, 10, _look(i))
            yield text(x + 24, y + 12, name)
            x += 26 + text_width(name) + 14
        y += LINE
    y += GAP
    low, high = bars.range()
    start = left + margin + below
    zero = start + ROOM * (max(low, 0.0) - low) / (high - low)
    height = len(bars.labels) * (BAR * len(bars.groups) + GAP)
    for row, label in enumerate(bars.labels):
        at = y + row * (BAR * len(bars.groups) + GAP)
        yield text(left + margin - 8, at + BAR * len(bars.groups) / 2 + 3, label, 'text-anchor="end"')
        for i, group in enumerate(bars.groups.values()):
            value = float(group[row])
            end = start + ROOM * (min(max(value, low), high) - low) / (high - low)
            yield rect(min(zero, end), at + BAR * i + 1, abs(end - zero), BAR - 3, _look(i))
            number = format_value(value, bars.decimals)
            side = ("end", end - 5) if value < 0 else ("start", end + 5)
            yield text(side[1], at + BAR * (i + 1) - 4, number, f'text-anchor="{side[0]}" font-size="11"')
    yield line(zero, y - 2, zero, y + height - GAP + 2)
    if bars.axis_label:
        yield text(start + ROOM, y + height + 6, bars.axis_label, f'text-anchor="end" {SMALL}')


def _look(group: int) -> str:
    """Returns a fill for the first group and outlines for the others, which differ without color too."""
    hue = COLORS[group % len(COLORS)]
    if group == 0:
        return f'fill="{hue}" stroke="{hue}"'
    dash = ("", ' stroke-dasharray="3 2"')[group % 2 == 0]
    return f'fill="none" stroke="{hue}" stroke-width="2"{dash}'
