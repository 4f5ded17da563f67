"""A figure as PNG, drawn by matplotlib (the extra `plot`)."""

import importlib
import io
import math
from typing import Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.report.chart import Chart, Heatmap, LegendKey, color
from pellucid.report.diagram import Bars, Grid, Histogram, format_value
from pellucid.report.figure import Figure
from pellucid.report.svg.grid import BRIGHT
from pellucid.report.svg.marks import COLORS, DASHES, NONE, RULE

STYLES: dict[str, dict[str, Any]] = {
    "faint": {"alpha": 0.3, "linewidth": 0.8},
    "line": {"linewidth": 1.8},
    "points": {"linewidth": 1.8, "marker": ".", "markersize": 6},
    "level": {"linewidth": 1.5, "linestyle": ":"},
}
LEGEND = 5
"""Names of the legend beside each other."""


def check_matplotlib() -> None:
    """Raises where no .png can be drawn."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UsageError(
            "a .png needs matplotlib, which is not installed: pip install 'pellucid[plot]'; or use -o "
            "curves.html or .svg, which need nothing."
        ) from None


def write_png(figure: Figure) -> bytes:
    """Returns the file, two plots in a row; its mark is the text chunk "Software"."""
    check_matplotlib()
    new_figure = importlib.import_module("matplotlib.figure").Figure
    plots = [(section.heading, plot) for section in figure.sections for plot in section.plots]
    known = Chart | Heatmap | Bars | Grid | Histogram
    if others := [plot for _, plot in plots if not isinstance(plot, known)]:
        raise UsageError(
            "a .png holds charts, heatmaps, grids, bars and histograms, and "
            f"{others[0].title!r} is none of them: use -o figure.svg."
        )
    keys = figure.keys()
    rows = math.ceil(len(plots) / 2)
    drawing = new_figure(
        figsize=(11, 3.5 * rows + 0.2 * (len(keys) // LEGEND)), dpi=130, layout="constrained"
    )
    places = list(drawing.subplots(rows, 2, squeeze=False).flat)
    for axes in places[len(plots) :]:
        axes.axis("off")
    for (heading, plot), axes in zip(plots, places, strict=False):
        if isinstance(plot, Heatmap):
            _draw_heatmap(axes, plot, heading)
        elif isinstance(plot, Chart):
            _draw_chart(axes, plot)
        elif isinstance(plot, Bars):
            _draw_bars(axes, plot)
        elif isinstance(plot, Grid):
            _draw_grid(axes, plot)
        elif isinstance(plot, Histogram):
            _draw_histogram(axes, plot)
    marks = [places[0].plot([], [], **_pen(key))[0] for key in keys]
    names = [key.name.replace("$", r"\$") for key in keys]
    if names:
        drawing.legend(marks, names, loc="outside upper left", ncols=LEGEND, frameon=False)
    file = io.BytesIO()
    drawing.savefig(file, format="png", metadata={"Software": "pellucid plot"})
    return file.getvalue()


def _draw_chart(axes: Any, chart: Chart) -> None:
    for series in chart.series:
        axes.plot(series.x, series.y, **_pen(series.key) | STYLES[series.style])
        if series.style == "level":
            here = (chart.x.low, series.y[0])
            offset = {"xytext": (4, 3), "textcoords": "offset points"}
            axes.annotate(series.label, here, color=_pen(series.key)["color"], fontsize=8, **offset)
    for mark in chart.marks:
        axes.plot([mark.x], [mark.y], "o", color="black", fillstyle="none" if mark.is_open else "full")
        offset = {"xytext": (5, 5), "textcoords": "offset points"}
        axes.annotate(mark.label.replace("$", r"\$"), (mark.x, mark.y), fontsize=8, **offset)
    if chart.y.is_log:
        axes.set_yscale("log")
    else:
        axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    limits = {"xlim": (chart.x.low, chart.x.high), "ylim": (chart.y.low, chart.y.high)}
    axes.set(title=chart.title, xlabel=chart.x.label, ylabel=chart.y.label, **limits)
    axes.grid(color=RULE)


def _draw_heatmap(axes: Any, heatmap: Heatmap, heading: str) -> None:
    none = tuple(int(NONE[i : i + 2], 16) for i in (1, 3, 5))
    places = heatmap.place(heatmap.values)
    cells = [[color(place, heatmap.scale) or none for place in row] for row in places]
    rows = np.arange(len(cells) + 1)
    axes.pcolormesh(heatmap.edges(), rows, np.array(cells) / 255)
    low, high = heatmap.limits()
    title = f"{heading}: {heatmap.title}, {low:.3g} … {high:.3g}".removeprefix(": ")
    axes.set_title(title.replace("$", r"\$"), fontsize=9)
    axes.set(xlim=(heatmap.x.low, heatmap.x.high), ylim=(len(cells), 0))
    axes.set_yticks(rows[: len(heatmap.rows)] + 0.5, heatmap.rows, fontsize=7)


def _draw_grid(axes: Any, grid: Grid) -> None:
    none, is_masked = tuple(int(NONE[i : i + 2], 16) for i in (1, 3, 5)), grid.is_masked
    white = (255, 255, 255)
    shades = [[white if grid.scale == "none" else color(p, grid.scale) for p in row] for row in grid.places()]
    cells = np.where(is_masked[..., None], none, np.array(shades))
    axes.pcolormesh(cells / 255)
    for i, j in np.ndindex(grid.values.shape):
        if not (grid.is_compact or is_masked[i, j]):
            ink = "black" if cells[i, j].sum() > BRIGHT else "white"
            words = grid.cell_text(i, j).replace("$", r"\$")
            axes.text(j + 0.5, i + 0.5, words, ha="center", va="center", fontsize=7, color=ink)
    for set_ticks, names in ((axes.set_xticks, grid.columns), (axes.set_yticks, grid.rows)):
        set_ticks(np.arange(len(names)) + 0.5, [name.replace("$", r"\$") for name in names], fontsize=6)
    if any(len(name) > 2 for name in grid.columns):
        axes.tick_params("x", rotation=90)
    axes.invert_yaxis()
    axes.set(xlabel=grid.column_label, ylabel=grid.row_label)
    axes.set_title(grid.title.replace("$", r"\$"), fontsize=9)


def _draw_bars(axes: Any, bars: Bars) -> None:
    rows, high = np.arange(len(bars.labels)), 0.8 / len(bars.groups)
    for i, (name, values) in enumerate(bars.groups.items()):
        drawn = axes.barh(
            rows + i * high, values, high, label=name.replace("$", r"\$"), color=COLORS[i % len(COLORS)]
        )
        axes.bar_label(drawn, [format_value(value, bars.decimals) for value in values], fontsize=7, padding=2)
    axes.set_yticks(rows + 0.4 - high / 2, [label.replace("$", r"\$") for label in bars.labels], fontsize=8)
    axes.invert_yaxis()
    axes.set(title=bars.title.replace("$", r"\$"), xlabel=bars.axis_label)
    axes.margins(x=0.12)
    if any(bars.groups):
        axes.legend(fontsize=8)


def _draw_histogram(axes: Any, histogram: Histogram) -> None:
    here = np.isfinite(histogram.heights)
    low, wide = histogram.edges[:-1][here], np.diff(histogram.edges)[here]
    heights = histogram.heights[here]
    axes.bar(low, heights, wide, align="edge", color=COLORS[0], alpha=0.55, label=histogram.names[0] or None)
    if histogram.expected is not None:
        wanted = histogram.expected[here]
        axes.bar(low, wanted - heights, wide, heights, align="edge", color=COLORS[1], alpha=0.25, label="gap")
        axes.hlines(wanted, low, low + wide, color="black", linewidth=1.5, label=histogram.names[1])
        ends = (histogram.x.low, histogram.x.high)
        axes.plot(ends, ends, "--", color="grey", linewidth=1)
        axes.legend(fontsize=8)
    limits = {"xlim": (histogram.x.low, histogram.x.high), "ylim": (histogram.y.low, histogram.y.high)}
    axes.set(title=histogram.title, xlabel=histogram.x.label, ylabel=histogram.y.label, **limits)
    axes.grid(color=RULE)


def _pen(key: LegendKey) -> dict[str, Any]:
    dash = ("-", "--", ":", "-.")[key.dash % len(DASHES)]
    return {"color": COLORS[key.color % len(COLORS)], "linestyle": dash}
