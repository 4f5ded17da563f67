"""A plot in characters: braille dots for series, shades for values, tables and lists for diagrams."""

import math
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pellucid.report.alt import describe_series
from pellucid.report.chart import Chart, Heatmap
from pellucid.report.diagram import Bars, Graph, Grid, Histogram, NumberLine, format_rows, format_value
from pellucid.report.figure import Figure, Plot
from pellucid.report.layout import find_layers

SHADES = " ░▒▓█"
BLANK = chr(0x2800)
"""The cell of braille without a dot. It is written as a space, since a terminal is sent nothing invisible."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The dots of a braille character, two across and four down."""
MARGIN = 10
"""Columns left of a chart, for the numbers of its axis."""
ROWS = 16
"""Rows of a heatmap, at most."""


LONG = 78
"""Columns of a line with a value and what it reads, at most; a longer one becomes two."""
FILLS = "█▒░▓"
"""The bars of the groups, in order."""


def write_text(plot: Plot | Figure, width: int = 56, height: int = 10) -> Iterator[str]:
    """Yields the lines of a plot, its title first, or of all plots of a figure; a chart has `width` columns
    and `height` lines, and bars have `width` columns at most."""
    if isinstance(plot, Figure):
        plots = [plot for section in plot.sections for plot in section.plots]
        for i, one in enumerate(plots):
            yield from [""] * (i > 0)
            yield from write_text(one, width, height)
            yield from _list_series(one) if isinstance(one, Chart) else ()
        yield from ["", *textwrap.wrap(plot.note, width)] if plot.note else []
    else:
        yield from WRITERS[type(plot)](plot, width, height)


def _write_heatmap(heatmap: Heatmap, width: int, height: int) -> Iterator[str]:
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
    for mark in chart.marks if not chart.series else ():  # a scatter plot; else points lie on lines
        at = np.array(
            [chart.x.place(mark.x) * (2 * width - 1), (1 - chart.y.place(mark.y)) * (4 * height - 1)]
        )
        if (at > -0.5).all() and at[0] < 2 * width - 0.5 and at[1] < 4 * height - 0.5:
            dots[round(float(at[1])), round(float(at[0]))] = True
    yield f"{chart.title}: {chart.y.label} ↑, {chart.x.label} →"
    for i in range(height):
        cells = dots[4 * i : 4 * i + 4].reshape(4, width, 2).transpose(1, 0, 2)
        label = {0: f"{chart.y.high:.3g}", height - 1: f"{chart.y.low:.3g}"}.get(i, "")
        line = "".join(chr(ord(BLANK) + int((cell * DOTS).sum())) for cell in cells)
        yield f"{label:>{MARGIN - 2}} │{line}".replace(BLANK, " ").rstrip()
    yield f"{'':>{MARGIN - 1}}└{'─' * width}"
    yield f"{'':>{MARGIN}}{chart.x.low:<{width // 2}g}{chart.x.high:>{width // 2}g}"
    for mark in chart.marks:
        point = f"{'○' if mark.is_open else '●'} ({mark.x:.4g}, {mark.y:.4g})"
        yield f"{'':>{MARGIN}}{point} {mark.label}".rstrip()


def _list_series(chart: Chart) -> Iterator[str]:
    """Yields the name of each of several series with its ends, which say whose the dots are."""
    named = [series for series in chart.series if series.key.name or series.label]
    for series in named if len(named) > 1 else ():
        yield f"{'':>{MARGIN}}{describe_series(series)}"


def _write_grid(grid: Grid, width: int, height: int) -> Iterator[str]:
    """Yields a table; a masked cell is ╱. A compact grid has whole multiples of a unit, or shades
    where it is wide."""
    if grid.is_compact:
        yield from _write_compact_grid(grid, width)
        return
    cells = [
        ["╱" if is_masked else grid.cell_text(i, j) for j, is_masked in enumerate(row)]
        for i, row in enumerate(grid.is_masked)
    ]
    side = max([len(name) for name in grid.rows], default=0)
    wide = max(len(text) for row in [*cells, grid.columns] for text in row)
    axes = ", ".join(
        filter(
            None, (grid.row_label and f"{grid.row_label} ↓", grid.column_label and f"{grid.column_label} →")
        )
    )
    yield f"{grid.title}: {axes}" if axes else grid.title
    for name, row in (("", grid.columns), *zip(grid.rows, cells, strict=True)):
        yield f"{name:>{side}}  {'  '.join(text.rjust(wide) for text in row)}"
    yield from [f"╱ {grid.masked_label}"] if grid.is_masked.any() else []
    for frame in grid.frames:
        (first, end), (start, stop) = frame.rows, frame.columns
        yield f"framed: {' '.join(grid.rows[first:end])} × {' '.join(grid.columns[start:stop])}"


def _write_compact_grid(grid: Grid, width: int) -> Iterator[str]:
    """Yields a row of cells for each row; columns with long names are numbered, and named below."""
    side, count, most = max(map(len, (*grid.rows, ""))), len(grid.columns), grid.limits()[1]
    digits = 2 if grid.scale == "share" else max(0, 2 - math.floor(math.log10(most)))
    shown = [
        [
            "╱" if m else f"{round(v * 10**digits)}".replace("-", "−")
            for v, m in zip(row, is_masked, strict=True)
        ]
        for row, is_masked in zip(grid.values, grid.is_masked, strict=True)
    ]
    wide = max(3, *(len(cell) for row in shown for cell in row)) + 1
    is_shaded = side + 1 + wide * count > width
    unit = f"shades up to {most:.3g}" if is_shaded else f"in units of {10.0**-digits:g}"
    yield f"{grid.title}: {grid.row_label} ↓, {grid.column_label} →, {unit}"
    is_numbered = is_shaded or any(len(name) >= wide for name in grid.columns)
    if is_shaded:
        cells = np.where(grid.is_masked, 0.0, grid.values) / most
        shown = [
            ["╱" if m else _shade(v) for v, m in zip(*both, strict=True)]
            for both in zip(cells, grid.is_masked, strict=True)
        ]
        wide = 1
    else:
        names = [str(j) for j in range(count)] if is_numbered else grid.columns
        yield f"{'':>{side}} {''.join(name.rjust(wide) for name in names)}"
    for name, row in zip(grid.rows, shown, strict=True):
        yield f"{name:>{side}} {''.join(cell.rjust(wide) for cell in row)}".rstrip()
    if is_numbered:
        listed = "  ".join(f"{j}:{name}" for j, name in enumerate(grid.columns))
        yield from textwrap.wrap(listed, width, subsequent_indent="  ", initial_indent="  ")


def _shade(share: float) -> str:
    """Returns a character for a share of the largest magnitude, "−" for one that is clearly below 0."""
    if share < -0.5 / len(SHADES):
        return "−"
    return SHADES[min(int(max(share, 0.0) * len(SHADES)), len(SHADES) - 1)]


def _write_bars(bars: Bars, width: int, height: int) -> Iterator[str]:
    """Yields a line for each bar, those of one label together."""
    yield f"{bars.title}: {bars.axis_label}" if bars.axis_label else bars.title
    side = max((len(label) for label in bars.labels), default=0)
    names = max((len(name) for name in bars.groups), default=0)
    numbers = [format_value(v, bars.decimals) for group in bars.groups.values() for v in group]
    digits = max(map(len, numbers), default=0)
    low, high = bars.range()
    room = max(width - side - names - digits - 6, 8)
    for i, label in enumerate(bars.labels):
        for g, (name, group) in enumerate(bars.groups.items()):
            start, end = (
                round(room * (min(max(v, low), high) - low) / (high - low)) for v in (0.0, float(group[i]))
            )
            bar = " " * min(start, end) + FILLS[g % len(FILLS)] * abs(end - start)
            number = format_value(group[i], bars.decimals)
            yield f"{label if g == 0 else '':>{side}}  {name:<{names}}  {number:>{digits}} {bar}".rstrip()


def _write_histogram(histogram: Histogram, width: int, height: int) -> Iterator[str]:
    """Yields a line for each bin that has a bar: █ up to its height, │ at what is expected; between them is
    the gap, ░ where the bar is too low and ▒ where it is too high."""
    yield f"{histogram.title}: {histogram.y.label} of each bin of {histogram.x.label}"
    bins = np.flatnonzero(np.isfinite(histogram.heights))
    ranges = [f"{histogram.edges[i]:.3g}–{histogram.edges[i + 1]:.3g}" for i in bins]
    side = max(map(len, ranges), default=0)
    numbers = 6 if histogram.expected is None else 13
    room = max(width - side - numbers - 3, 8)

    def place(value: float) -> int:
        return round(room * float(np.clip(histogram.y.place(value), 0, 1)))

    for i, name in zip(bins, ranges, strict=True):
        value = float(histogram.heights[i])
        end, number = place(value), f"{value:.3f}"
        bar = "█" * end
        if histogram.expected is not None:
            wanted = place(float(histogram.expected[i]))
            number = f"{value:.3f} {histogram.gaps()[i]:+.3f}"
            low, gap = min(end, wanted), "░" if wanted > end else "▒"
            bar = "█" * low + gap * (max(end, wanted) - low)
            bar = f"{bar[: max(wanted - 1, 0)]}│{bar[max(wanted, 1) :]}"
        yield f"{name:>{side}}  {number:>{numbers - 1}} {bar}".replace("-", "−").rstrip()
    if histogram.expected is not None:
        yield f"█ {histogram.names[0]}, │ {histogram.names[1]}, ░ {histogram.names[0]} below it, ▒ above it"


def _write_number_line(lines: NumberLine, width: int, height: int) -> Iterator[str]:
    """Yields for each row its numbers, and a line with its points: ● for one entry, 2 for two."""
    yield lines.title
    for row in lines.rows:
        mean = f", mean {format_value(row.mean, lines.decimals)}" if row.mean is not None else ""
        yield f"{row.name} {format_rows(row.values, lines.decimals)[0]}{mean}"
        cells = ["─"] * width
        places = np.clip(np.round(lines.axis.place(np.ravel(row.values)) * (width - 1)), 0, width - 1)
        for place, count in zip(*np.unique(places.astype(int), return_counts=True), strict=True):
            cells[place] = "●" if count == 1 else str(min(count, 9))
        yield "".join(cells)
    ends = f"{lines.axis.low:.4g}", f"{lines.axis.high:.4g}"
    yield f"{ends[0]}{ends[1]:>{max(width - len(ends[0]), 1)}}"


def _write_graph(graph: Graph, width: int, height: int) -> Iterator[str]:
    """Yields each value after those that it is computed from, and below it its gradient."""
    yield from [graph.title] if graph.title else []
    layers, symbols = find_layers(graph), {node.name: node.symbol for node in graph.nodes}
    for node in sorted(graph.nodes, key=lambda node: layers[node.name]):
        sources = [symbols[edge.source] for edge in graph.edges if edge.target == node.name]
        shown = f"  {node.symbol}{_format_numbers(node.value, graph.decimals)}"
        read = f"   ← {', '.join(sources)}" if sources else ""
        yield from [shown + read] if len(shown + read) <= LONG else [shown, f" {read}"]
        if node.gradient is not None:
            yield f"    d{node.symbol}{_format_numbers(node.gradient, graph.decimals)}"


def _format_numbers(numbers: Any, decimals: int) -> str:
    return f" = {' '.join(format_rows(numbers, decimals))}" if numbers is not None else ""


WRITERS: dict[type, Callable[[Any, int, int], Iterator[str]]] = {
    Chart: _write_chart,
    Heatmap: _write_heatmap,
    Grid: _write_grid,
    Bars: _write_bars,
    Histogram: _write_histogram,
    NumberLine: _write_number_line,
    Graph: _write_graph,
}
