"""Views as an HTML page that needs nothing from elsewhere, and no script: formulas, tables and plots."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from pellucid.base.formatting import escape_controls
from pellucid.report.html import escape_text, fill_page
from pellucid.report.inline import dark_rules, draw_plots
from pellucid.report.view import View, ViewTable
from pellucid.report.view_text import format_entry

MOST_ROWS = 400
"""Rows of a table on the page; all are in the data."""


def make_page(name: str, prompts: Sequence[Sequence[str]], views: Sequence[View], note: str = "") -> str:
    """Returns the page of some views of one model; `prompts` are the tokens of each prompt, as shown, and
    the note precedes them."""
    links = (f'<a href="#{view.kind}-{i}">{escape_text(view.title)}</a>' for i, view in enumerate(views))
    parts = {
        "DARK_RULES": dark_rules(),
        "TITLE": f"Inside {escape_text(name)}",
        "HEADING": f"Inside {escape_text(name)}",
        "PROMPTS": f'<p class="faint">{escape_text(note)}</p>' * bool(note)
        + "\n".join(map(_draw_prompt, prompts)),
        "CONTENTS": "\n".join(links) if len(views) > 1 else "",
        "VIEWS": "\n".join(line for i, view in enumerate(views) for line in _draw_view(view, i)),
    }
    return fill_page((Path(__file__).parent / "view_page.html").read_text("utf-8"), parts)


def _draw_prompt(tokens: Sequence[str]) -> str:
    spans = (f"<span><small>{i}</small> {escape_text(token)}</span>" for i, token in enumerate(tokens))
    return f'<p class="prompt">{"".join(spans)}</p>'


def _draw_view(view: View, number: int) -> Iterator[str]:
    yield f'<section id="{view.kind}-{number}"><h2>{escape_text(view.title)}</h2>'
    yield f"<pre>{escape(escape_controls(view.formula))}</pre>"
    if view.plots:
        yield from draw_plots(view.plots, number)
    for table in view.tables:
        yield from draw_table(table)
    for note in view.notes:
        yield f'<p class="faint">{escape_text(note)}</p>'
    yield "</section>"


def draw_table(table: ViewTable) -> Iterator[str]:
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
    if (more := len(table.rows) - MOST_ROWS) > 0:
        yield f'<p class="faint">and {more:,} more rows</p>'
