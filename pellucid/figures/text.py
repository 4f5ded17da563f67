"""A chart or a heatmap in characters: braille dots for series, shades for values."""

from collections.abc import Iterator

import numpy as np

from pellucid.figures.chart import Chart, Heatmap

SHADES = " ░▒▓█"
BLANK = chr(0x2800)
"""The cell of braille without a dot. It is written as a space, since a terminal is sent nothing invisible."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The dots of a braille character, two across and four down."""
MARGIN = 10
"""Columns left of a chart, for the numbers of its axis."""
ROWS = 16
"""Rows of a heatmap, at most."""


def write_text(plot: Chart | Heatmap, width: int = 56, height: int = 10) -> Iterator[str]:
    """Yields the lines of a plot, its title first; a chart has `width` columns and `height` lines."""
    return _write_heatmap(plot) if isinstance(plot, Heatmap) else _write_chart(plot, width, height)


def _write_heatmap(heatmap: Heatmap) -> Iterator[str]:
    yield f"{heatmap.title}: {heatmap.y_label} ↓, {heatmap.x.label} →"
    for row in np.nan_to_num(heatmap.place(heatmap.values[:ROWS])):
        if heatmap.scale == "mask":
            yield " ".join("█" if cell else "·" for cell in row)
        else:
            yield "".join(SHADES[min(int(cell * len(SHADES)), len(SHADES) - 1)] for cell in row)


def _write_chart(chart: Chart, width: int, height: int) -> Iterator[str]:
    """Yields a title, the dots beside the ends of the y axis, and the ends of the x axis."""
    dots = np.zeros((4 * height, 2 * width), dtype=bool)
    across = np.linspace(chart.x.low, chart.x.high, 2 * width)
    for series in (series for series in chart.series if len(series.x)):
        y = np.interp(across, series.x, chart.y.place(series.y), left=np.nan, right=np.nan)
        if len(series.x) == 1:  # a point between two columns
            y[round(chart.x.place(series.x).item() * (2 * width - 1))] = chart.y.place(series.y).item()
        if series.style == "level":
            y[np.arange(2 * width) % 4 > 0] = np.nan  # dotted
        down = (1 - y) * (4 * height - 1)
        inside = (down > -0.5) & (down < 4 * height - 0.5)
        dots[down[inside].round().astype(int), np.flatnonzero(inside)] = True
    yield f"{chart.title}: {chart.y.label} ↑, {chart.x.label} →"
    for i in range(height):
        cells = dots[4 * i : 4 * i + 4].reshape(4, width, 2).transpose(1, 0, 2)
        label = {0: f"{chart.y.high:.3g}", height - 1: f"{chart.y.low:.3g}"}.get(i, "")
        line = "".join(chr(ord(BLANK) + int((cell * DOTS).sum())) for cell in cells)
        yield f"{label:>{MARGIN - 2}} │{line}".replace(BLANK, " ").rstrip()
    yield f"{'':>{MARGIN - 1}}└{'─' * width}"
    yield f"{'':>{MARGIN}}{chart.x.low:<{width // 2}g}{chart.x.high:>{width // 2}g}"
