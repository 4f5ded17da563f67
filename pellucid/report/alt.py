"""Plots in words: the alternative text of a picture, with its numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.report.chart import Chart, Heatmap, Series
from pellucid.report.diagram import (
    Bars,
    Graph,
    GraphNode,
    Grid,
    Histogram,
    NumberLine,
    format_rows,
    format_value,
)

FEW_POINTS = 12
"""Points of a series whose numbers are all said."""
FEW_CELLS = 5
"""The cells of largest magnitude of a compact grid, whose numbers are said."""


def describe(plot: Any) -> str:
    """Returns one sentence without its full stop, the title first."""
    words = "; ".join(filter(None, DESCRIBERS[type(plot)](plot)))
    return f"{plot.title}: {words}" if plot.title else words


def _chart(chart: Chart) -> list[str]:
    axes = f"{chart.y.label or 'y'} over {chart.x.label or 'x'}"
    marks = [f"{mark.label} at ({mark.x:.4g}, {mark.y:.4g})" for mark in chart.marks if mark.label]
    return [axes, *(describe_series(series) for series in chart.series), *marks]


def describe_series(series: Series) -> str:
    """Returns the name of a series with its numbers, or with the first and the last of many."""
    here = np.isfinite(series.y)
    values = [f"{value:.4g}" for value in series.y[here]]
    if series.style == "level":
        return f"{series.label or series.key.name} at {values[0]}"
    shown = ", ".join(values) if len(values) <= FEW_POINTS else f"from {values[0]} to {values[-1]}"
    return f"{series.key.name} {shown}".strip()


def _heatmap(heatmap: Heatmap) -> list[str]:
    rows, columns = heatmap.values.shape
    return [f"{rows} rows of {heatmap.y_label} by {columns} columns of {heatmap.x.label}"]


def _grid(grid: Grid) -> list[str]:
    if grid.is_compact:
        return _compact_grid(grid)
    lines = []
    for i, (name, row, is_masked) in enumerate(zip(grid.rows, grid.values, grid.is_masked, strict=True)):
        texts = [
            grid.masked_label if m else format_value(v, grid.decimals)
            for v, m in zip(row, is_masked, strict=True)
        ]
        if grid.texts:
            texts = [f"{own} {number}" for own, number in zip(grid.texts[i], texts, strict=True)]
        cells = ", ".join(f"{column} {text}" for column, text in zip(grid.columns, texts, strict=True))
        lines.append(f"{grid.row_label or 'row'} {name}: {cells}")
    return lines


def _compact_grid(grid: Grid) -> list[str]:
    low, high = (format_value(value, max(grid.decimals, 2)) for value in grid.limits())
    size = f"{len(grid.rows)} rows of {grid.row_label or 'row'} by {len(grid.columns)} columns of"
    sizes = np.where(grid.is_masked, -1.0, np.abs(grid.values))
    largest = np.argsort(-sizes, None, "stable")[:FEW_CELLS].tolist()
    order = [divmod(place, sizes.shape[1]) for place in largest]
    cells = (
        f"{grid.row_label or 'row'} {grid.rows[i]} {grid.column_label or 'column'} {grid.columns[j]} "
        f"{format_value(grid.values[i, j], grid.decimals)}"
        for i, j in order
        if not grid.is_masked[i, j]
    )
    return [
        f"{size} {grid.column_label or 'column'}, colors from {low} to {high}",
        f"largest: {', '.join(cells)}",
    ]


def _bars(bars: Bars) -> list[str]:
    lines = []
    for i, label in enumerate(bars.labels):
        values = (f"{name} {format_value(group[i], bars.decimals)}" for name, group in bars.groups.items())
        lines.append(f"{label} {', '.join(value.strip() for value in values)}")
    return lines


def _histogram(histogram: Histogram) -> list[str]:
    lines = [f"{histogram.y.label or 'y'} over {histogram.x.label or 'x'}"]
    for i in np.flatnonzero(np.isfinite(histogram.heights)):
        low, high = histogram.edges[i], histogram.edges[i + 1]
        words = f"{low:.3g} to {high:.3g}: {histogram.names[0]} {histogram.heights[i]:.3g}"
        if histogram.expected is not None:
            words += f", {histogram.names[1]} {histogram.expected[i]:.3g}"
        lines.append(words.replace("  ", " "))
    return lines


def _number_line(line: NumberLine) -> list[str]:
    lines = []
    for row in line.rows:
        mean = f", mean {format_value(row.mean, line.decimals)}" if row.mean is not None else ""
        lines.append(f"{row.name} {format_rows(row.values, line.decimals)[0]}{mean}")
    return lines


def _graph(graph: Graph) -> list[str]:
    symbols = {node.name: node.symbol for node in graph.nodes}
    lines = []
    for node in graph.nodes:
        sources = [symbols[edge.source] for edge in graph.edges if edge.target == node.name]
        read = f" from {' and '.join(sources)}" if sources else ""
        lines.append(f"{node.symbol}{_numbers(node, graph.decimals)}{read}")
    return lines


def _numbers(node: GraphNode, decimals: int) -> str:
    value = f" = {' '.join(format_rows(node.value, decimals))}" if node.value is not None else ""
    gradient = f" with gradient {' '.join(format_rows(node.gradient, decimals))}"
    return value + (gradient if node.gradient is not None else "")


DESCRIBERS: dict[type, Callable[[Any], list[str]]] = {
    Chart: _chart,
    Heatmap: _heatmap,
    Grid: _grid,
    Bars: _bars,
    Histogram: _histogram,
    NumberLine: _number_line,
    Graph: _graph,
}
