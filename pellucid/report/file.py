"""A figure written to a file, by the ending of its name; only a figure of this program is ever replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.files import Kind, check_output, new_file
from pellucid.base.formatting import escape_controls
from pellucid.report.chart import Chart, LegendKey
from pellucid.report.figure import Figure
from pellucid.report.inline import draw_key
from pellucid.report.page import FOLDER, make_page, read_style
from pellucid.report.page_colors import BRIGHT
from pellucid.report.png import check_matplotlib, write_png
from pellucid.report.svg import has_name, plot_marks, tile, write_svg
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
    legend = "\n".join(map(draw_key, filter(has_name, keys)))
    colors = (" ".join(f"--run{i}: {color};" for i, color in enumerate(each)) for each in (COLORS, BRIGHT))
    light, dark = colors
    style = f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    body = [f'<ul class="legend">{legend}</ul>' if legend else "", *_draw(figure), '<div id="tip"></div>']
    return make_page(
        "pellucid plot",
        figure.title,
        figure.found or figure.note,
        "\n".join(body),
        style=style + read_style(FOLDER / "plot.css"),
        script=read_style(FOLDER / "plot.js"),
        data={"names": names, "panels": charts},
    ).encode()


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


WRITERS = {".html": write_page, ".svg": write_svg, ".png": write_png}
MARKS = {
    ".html": b'<meta name="generator" content="pellucid plot">',
    ".svg": b'data-generator="pellucid plot"',
    ".png": b"Software\0pellucid plot",
}
"""The bytes by which a figure of this program is recognized, among its first ones."""
BEGIN = 4096


def _why_not_ours(path: Path) -> str:
    if not path.is_file():
        return "it is not a file"
    with path.open("rb") as file:
        begin = file.read(BEGIN)
    return "" if MARKS[path.suffix.lower()] in begin else "it has no mark of `pellucid plot`"


FIGURE_FILE = Kind("a picture", _why_not_ours)


def check_figure_output(path: Path, force: bool = False) -> None:
    """Raises where a figure could not be written to this path, before anything is drawn."""
    if path.name and path.suffix.lower() not in WRITERS:
        raise UsageError(
            f"{path} does not end in .html, .svg or .png, and other formats cannot be written: "
            f"use -o {path.stem}.html."
        )
    if path.suffix.lower() == ".png":
        check_matplotlib()
    check_output(path, FIGURE_FILE, force)


def write_figure(path: Path, figure: Figure, force: bool = False) -> None:
    """Writes a figure as an HTML page, SVG or PNG."""
    check_figure_output(path, force)
    data = WRITERS[path.suffix.lower()](figure)
    with new_file(path, FIGURE_FILE, force) as file:
        file.write(data)
