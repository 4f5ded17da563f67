"""A histogram as SVG: bars between the edges of bins, and the gap of each to what is expected."""

from collections.abc import Iterator

import numpy as np

from pellucid.report.diagram import Histogram
from pellucid.report.svg.chart import axes_marks
from pellucid.report.svg.marks import COLORS, FAINT, HALO, INK, SMALL, Tile, line, rect, text, text_width

BAR = f'fill="{COLORS[0]}" fill-opacity="0.55" stroke="{COLORS[0]}"'
GAP = f'fill="{COLORS[1]}" fill-opacity="0.25" stroke="{COLORS[1]}" stroke-dasharray="3 2"'
LEVEL = f'stroke="{INK}" stroke-width="2"'
DIAGONAL = f'stroke="{FAINT}" stroke-dasharray="5 4"'


def histogram_tile(histogram: Histogram, size: tuple[int, int]) -> Tile:
    """Returns the room for ticks and labels around axes of this size."""
    return Tile(70, 10, 26, 42, *size)


def histogram_marks(histogram: Histogram, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the axes and the bars; where something is expected, its level, the gap and the diagonal."""
    yield from axes_marks(histogram.title, histogram.x, histogram.y, size, left, top)
    bottom = top + size.height
    across = left + size.width * histogram.x.place(histogram.edges)

    def height(value: float) -> float:
        return bottom - size.height * float(np.clip(histogram.y.place(value), 0, 1))

    for i in np.flatnonzero(np.isfinite(histogram.heights)):
        start, end = float(across[i]), float(across[i + 1])
        level = height(float(histogram.heights[i]))
        yield rect(start, level, end - start, bottom - level, BAR)
        if histogram.expected is not None:
            wanted = height(float(histogram.expected[i]))
            yield rect(start + 1, min(level, wanted), max(end - start - 2, 0.5), abs(wanted - level), GAP)
            yield line(start, wanted, end, wanted, LEVEL)
    if histogram.expected is not None:
        low, high = max(histogram.x.low, histogram.y.low), min(histogram.x.high, histogram.y.high)
        ends = [left + size.width * float(histogram.x.place(value)) for value in (low, high)]
        yield line(ends[0], height(low), ends[1], height(high), DIAGONAL)
        yield from _legend(histogram, left + 8, top + 8)
    if not np.isfinite(histogram.heights).any():
        middle = f'text-anchor="middle" fill="{FAINT}"'
        yield text(left + size.width / 2, top + size.height / 2, "no data", middle)


def _legend(histogram: Histogram, x: float, y: float) -> Iterator[str]:
    """Yields what is drawn, in the upper left: a calibrated model has no bars there."""
    rows = ((BAR, histogram.names[0]), (LEVEL, histogram.names[1]), (GAP, "gap"), (DIAGONAL, "equal"))
    wide = max(text_width(name, 11) for _, name in rows) + 30
    yield rect(x - 4, y - 4, wide, 15 * len(rows) + 4, 'fill="#ffffff" fill-opacity="0.8"')
    for i, (look, name) in enumerate(rows):
        at = y + 15 * i
        if look in (BAR, GAP):
            yield rect(x, at, 18, 9, look)
        else:
            yield line(x, at + 5, x + 18, at + 5, look)
        yield text(x + 24, at + 9, name, f"{SMALL} {HALO}")
