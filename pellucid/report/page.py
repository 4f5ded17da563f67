"""A figure as an HTML page that needs nothing from elsewhere: two plots beside each other or one below the
other as the window has room, dark where the reader's system is, and the values under the pointer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from pellucid.base.formatting import escape_controls
from pellucid.report.chart import Chart, LegendKey
from pellucid.report.figure import Figure
from pellucid.report.inline import BRIGHT, dark_rules, draw_key
from pellucid.report.svg import has_name, plot_marks, tile
from pellucid.report.svg.marks import COLORS, Tile, svg_tag


def write_page(figure: Figure) -> bytes:
    """Returns the file; its mark is the `generator` of its head."""
    keys = figure.keys()
    charts = [
        _data(plot, keys, tile(section))
        for section in figure.sections
        for plot in section.plots
        if isinstance(plot, Chart)
    ]
    names = [{"name": key.name, "color": f"var(--run{key.color % len(COLORS)})"} for key in keys]
    values = json.dumps({"names": names, "panels": charts}, ensure_ascii=False, allow_nan=False)
    parts = {
        "TITLE": escape(figure.title),
        "LIGHT": " ".join(f"--run{i}: {color};" for i, color in enumerate(COLORS)),
        "DARK": " ".join(f"--run{i}: {color};" for i, color in enumerate(BRIGHT)),
        "DARK_MARKS": dark_rules(),
        "NAMES": "\n".join(map(draw_key, filter(has_name, keys))),
        "DRAWING": "\n".join(_draw(figure)),
        "VALUES": values.replace("<", "\\u003c"),
    }
    page = (Path(__file__).parent / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page).encode()


def _draw(figure: Figure) -> Iterator[str]:
    for i, section in enumerate(figure.sections):
        size = tile(section)
        if section.heading:
            yield f"<h2>{escape(section.heading)}</h2>"
        yield '<div class="tiles">'
        for j, plot in enumerate(section.plots):
            yield svg_tag(*size.outer, 'class="panel"' if isinstance(plot, Chart) else "")
            yield from plot_marks(plot, f"plot-{i}-{j}", size, 0, 0)
            yield "</svg>"
        yield "</div>"
    for excerpt in figure.excerpts:
        shown = escape(escape_controls(excerpt.text, keep="\n").strip("\n"))
        yield f"<h2>{escape(excerpt.title)}</h2>\n<pre>{shown}</pre>"


def _data(chart: Chart, keys: list[LegendKey], size: Tile) -> dict[str, Any]:
    """Returns what the page's script needs: the place of the axes, and every series that is not faint."""
    curves = []
    for series in chart.series:
        here = np.isfinite(series.y)
        if series.style in ("line", "points") and here.any():
            y = series.y[here]
            curves.append(
                {
                    "run": keys.index(series.key),
                    "steps": series.x[here].tolist(),
                    "values": [float(f"{value:.6g}") for value in y],
                    "places": [round(float(place), 4) for place in chart.y.place(y)],
                }
            )
    axes = {"left": size.left, "top": size.above, "wide": size.width, "high": size.height}
    names = {"title": chart.title, "unit": "epoch" if chart.x.label == "epochs" else "step"}
    return names | {"curves": curves, "first": chart.x.low, "last": chart.x.high} | axes
