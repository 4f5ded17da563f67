"""A report as HTML: its page, and what a notebook shows of it; plots have their numbers in words."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base import notebook
from pellucid.base.columns import shorten
from pellucid.base.formatting import escape_controls
from pellucid.report.alt import describe
from pellucid.report.chart import Chart, LegendKey
from pellucid.report.diagram import Grid
from pellucid.report.figure import Figure, Plot, Section, make_figure
from pellucid.report.items import Item, OnPage, ReportTable, View, ViewTable
from pellucid.report.page import FOLDER, escape_text, make_page, read_style
from pellucid.report.page_colors import BRIGHT
from pellucid.report.svg import ZOOM, has_name, plot_marks, tile
from pellucid.report.svg.marks import COLORS, Tile, stroke, svg_tag
from pellucid.report.terminal import format_blocks, format_entry, format_view

if TYPE_CHECKING:
    from pellucid.report.report import Report

MOST_ROWS = 400
"""Rows of a table on the page; all are in the data."""
LONGEST_CELL, LONGEST_NOTE = 120, 500
"""Letters of a cell and of a note."""
PRE_WIDTH = 100
"""Letters of a line that stands on a page as it is."""
PLOT_STYLE = """\
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.tiles svg { max-width: min(100%, 34rem); }
.tiles svg.panel { width: 100%; }
#tip { position: fixed; display: none; padding: .4rem .6rem; background: var(--paper); \
border: 1px solid var(--rule);
       pointer-events: none; white-space: pre-wrap; max-width: 90vw; font-size: 13px; }
"""


def write_html(report: "Report") -> str:
    """Returns the page: its numbers, then its pictures, whose charts say every value under the pointer."""
    verb = report.file.verb if report.file else "report"
    numbers = count()
    body = [line for block in report.blocks for item in block for line in _draw_item(item, numbers)]
    if len(report.views) > 1:
        named = ((f"{view.kind}-{i}", view.title) for i, view in enumerate(report.views))
        links = (f'<a href="#{name}">{escape_text(title)}</a>' for name, title in named)
        body.insert(0, f"<nav>{chr(10).join(links)}</nav>")
    style, script, data = report.style, "", None
    if report.draw is not None and not report.views:
        figure = report.draw()
        body += _draw_figure(figure)
        style += _curve_colors() + PLOT_STYLE
        script, data = read_style(FOLDER / "plot.js"), _make_data(figure)
    return make_page(
        f"pellucid {verb}", report.title, report.found, "\n".join(body), style=style, script=script, data=data
    )


def write_notebook(report: "Report") -> str:
    """Returns what a notebook shows: what was found, and the text, in which each view folds; a block with a
    table of its page shows that in place of its lines."""
    parts = [notebook.line(report.found)]
    for block in report.blocks:
        views = [item for item in block if isinstance(item, View)]
        shown = [item.item for item in block if isinstance(item, OnPage)]
        tables = [item for item in shown if isinstance(item, ReportTable)]
        parts += [
            notebook.branch(view.title, (notebook.line("\n".join(format_view(view))),)) for view in views
        ]
        parts += [notebook.table("", table.rows, "left") for table in tables]
        parts += [notebook.line(text) for text in shown if isinstance(text, str)]
        if not views and not tables:
            parts.append(notebook.line("\n".join(format_blocks([block]))))
    return "".join(parts)


# ---- items


def _draw_item(item: Item, numbers: Iterator[int]) -> Iterator[str]:
    if isinstance(item, str):
        yield f'<p class="faint">{escape_text(shorten(item, LONGEST_NOTE))}</p>'
    elif isinstance(item, ReportTable):
        yield from _draw_rows(item)
    elif isinstance(item, View):
        yield from _draw_view(item, f"{item.kind}-{next(numbers)}")
    elif isinstance(item, OnPage):
        if isinstance(item.item, str):
            yield from _draw_lines(item.item)
        else:
            yield from _draw_rows(item.item) if isinstance(item.item, ReportTable) else item.item()
    elif item.is_on_page:
        yield from _draw_lines("\n".join(item.lines(PRE_WIDTH)))


def _draw_lines(text: str) -> Iterator[str]:
    if text:
        yield f"<pre>{escape(escape_controls(text))}</pre>"


def _draw_rows(table: ReportTable) -> Iterator[str]:
    """Yields a table with headings in its first cells; one after a space belongs to the row above it."""
    if table.heading:
        yield f"<h2>{escape_text(table.heading)}</h2>"
    head, *rows = table.rows
    more = "<th></th>" if table.meanings else ""
    heads = "".join(f"<th>{_cell(name)}</th>" for name in head[1:])
    first = f'<th scope="col">{_cell(head[0])}</th>'
    prose = ' class="prose"' if table.is_prose else ""
    yield f'<div class="scroll"><table{prose}><thead><tr>{first}{heads}{more}</tr></thead><tbody>'
    for i, (first, *cells) in enumerate(rows[:MOST_ROWS]):
        label = table.labels[i] if table.labels else first
        kind = ' class="level"' if label.startswith(" ") else ""
        longest = LONGEST_NOTE if table.is_prose else LONGEST_CELL
        numbers = "".join(f"<td>{_cell(cell, longest)}</td>" for cell in cells)
        meaning = f'<td class="meaning">{_cell(table.meanings[i])}</td>' if table.meanings else ""
        wide = f' colspan="{len(head)}"' if not cells else ""
        yield f'<tr{kind}><th scope="row"{wide}>{_cell(label.strip())}</th>{numbers}{meaning}</tr>'
    yield "</tbody></table></div>"
    yield from _count_more(len(rows))


def _cell(text: str, longest: int = LONGEST_CELL) -> str:
    return escape_text(shorten(text, longest))


def _count_more(rows: int) -> Iterator[str]:
    if rows > MOST_ROWS:
        yield f'<p class="faint">and {rows - MOST_ROWS:,} more rows</p>'


def _draw_view(view: View, name: str) -> Iterator[str]:
    yield f'<section class="view" id="{name}"><h2>{escape_text(view.title)}</h2>'
    yield f"<pre>{escape(escape_controls(view.formula))}</pre>"
    if view.plots:
        yield from draw_plots(view.plots, name)
    for table in view.tables:
        yield from _draw_table(table)
    for note in view.notes:
        yield f'<p class="faint">{escape_text(note)}</p>'
    yield "</section>"


def _draw_table(table: ViewTable) -> Iterator[str]:
    """Yields a table as HTML; columns of texts are aligned left, those of numbers right."""
    is_text = [any(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    kinds = [' class="left"' if left else "" for left in is_text]
    yield '<div class="scroll"><table>'
    if table.caption:
        yield f"<caption>{escape_text(table.caption)}</caption>"
    heads = (f"<th{kind}>{escape_text(name)}</th>" for name, kind in zip(table.columns, kinds, strict=True))
    yield f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for row in table.rows[:MOST_ROWS]:
        cells = (
            f"<td{kind}>{escape(format_entry(cell, table.decimals))}</td>"
            for cell, kind in zip(row, kinds, strict=True)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    yield from _count_more(len(table.rows))


# ---- plots


def draw_plots(plots: Sequence[Plot], name: str, size: tuple[int, int] = (300, 160)) -> Iterator[str]:
    """Yields the legend of some plots, where they have one, and the plots, those of one kind together; `name`
    is that of no other drawings on the page."""
    yield from _draw_figure(make_figure("", *plots, size=size), name)


def _draw_figure(figure: Figure, name: str = "plot") -> Iterator[str]:
    """Yields the legend, and each section under its heading: plots with their numbers in words, in a <div>
    that the page lays out."""
    if keys := list(filter(has_name, figure.keys())):
        yield f'<ul class="legend">{"".join(map(_draw_key, keys))}</ul>'
    for i, section in enumerate(figure.sections):
        shared = tile(section)
        if section.heading not in ("", figure.title):
            yield f"<h2>{escape(section.heading)}</h2>"
        yield '<div class="tiles">'
        for j, plot in enumerate(section.plots):
            size = tile(Section("", [plot])) if isinstance(plot, Grid) else shared  # a grid may be much wider
            panel = ' class="panel"' if isinstance(plot, Chart) else ""
            yield svg_tag(*size.outer, f'role="img" width="{ZOOM * size.outer[0]:g}"{panel}')
            yield f"<desc>{escape(describe(plot))}</desc>"
            yield from plot_marks(plot, f"{name}-{i}-{j}", size, 0, 0)
            yield "</svg>"
        yield "</div>"
    for excerpt in figure.excerpts:
        shown = escape(escape_controls(excerpt.text, keep="\n").strip("\n"))
        yield f"<h2>{escape(excerpt.title)}</h2>\n<pre>{shown}</pre>"


def _draw_key(key: LegendKey) -> str:
    line = f'<path fill="none" {stroke(key)} stroke-width="2" d="M0 5h22"/>'
    return f'<li><svg viewBox="0 0 22 10" width="22" height="10">{line}</svg> {escape(key.name)}</li>'


def _curve_colors() -> str:
    light, dark = (
        " ".join(f"--run{i}: {color};" for i, color in enumerate(each)) for each in (COLORS, BRIGHT)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _make_data(figure: Figure) -> dict[str, Any]:
    """Returns what the page's script shows under the pointer: the names, and the curves of each chart."""
    keys = figure.keys()
    panels = [
        _make_panel(plot, keys, tile(section))
        for section in figure.sections
        for plot in section.plots
        if isinstance(plot, Chart)
    ]
    names = [{"name": key.name, "color": f"var(--run{key.color % len(COLORS)})"} for key in keys]
    return {"names": names, "panels": panels}


def _make_panel(chart: Chart, keys: list[LegendKey], size: Tile) -> dict[str, Any]:
    """Returns the place of the axes, and every series that is not faint."""
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
