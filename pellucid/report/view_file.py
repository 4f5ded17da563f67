"""Results of looks at a model, written to a file: JSON with every number, an HTML page, or a picture."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.files import UNPAIRED, check_output, make_json_kind, make_page_kind, new_file
from pellucid.base.formatting import escape_controls
from pellucid.report.figure import Figure, group_plots
from pellucid.report.file import check_figure_output, write_figure
from pellucid.report.inline import draw_plots
from pellucid.report.page import escape_text, read_style
from pellucid.report.page import make_page as write_html
from pellucid.report.view import View, ViewTable
from pellucid.report.view_text import format_entry

FORMAT, VERSION = "pellucid-look", 1
MARK = b'<meta name="generator" content="pellucid look">'
KINDS = {
    ".json": make_json_kind("a file of a look", FORMAT),
    ".html": make_page_kind("a page of a look", MARK),
}
PICTURES = (".svg", ".png")


@dataclass(frozen=True)
class LookRecord:
    """The views of one model; `prompts` are the tokens of each prompt, as shown, and the note says where the
    text was not given by the reader."""

    model: str
    prompts: Sequence[Sequence[str]]
    views: Sequence[View]
    note: str = ""

    def to_data(self) -> dict[str, Any]:
        """Returns everything as JSON has it; a number that JSON does not have is None."""
        views = [
            {
                "kind": view.kind,
                "title": view.title,
                "formula": view.formula,
                "tables": [
                    {"caption": table.caption, "columns": list(table.columns), "rows": list(table.rows)}
                    for table in view.tables
                ],
                "notes": list(view.notes),
                "data": view.data,
            }
            for view in self.views
        ]
        about = {"format": FORMAT, "version": VERSION, "model": self.model, "prompts": list(self.prompts)}
        about |= {"note": self.note} if self.note else {}
        return dict(make_plain({**about, "views": views}))


def make_plain(value: Any) -> Any:
    """Returns a value as lists, dictionaries, numbers, texts and None.

    >>> make_plain({"a": np.array([1.0, np.nan]), "b": (np.int64(3), np.bool_(True))})
    {'a': [1.0, None], 'b': [3, True]}
    """
    if isinstance(value, np.ndarray | np.generic):
        return make_plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): make_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def check_look_output(path: Path, force: bool = False) -> None:
    """Raises where the file could not be written, before anything is computed."""
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        check_figure_output(path, force)
    elif suffix in KINDS:
        check_output(path, KINDS[suffix], force)
    else:
        raise UsageError(
            f"{path} does not end in .json, .html, .svg or .png: use -o {path.stem or 'look'}.html."
        )


def write_look(path: Path, look: LookRecord, force: bool = False) -> None:
    """Writes the views as the ending of the name says."""
    check_look_output(path, force)
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        write_figure(path, make_look_figure(look), force)
        return
    if suffix == ".json":
        text = json.dumps(look.to_data(), ensure_ascii=False, indent=1, allow_nan=False)
    else:
        text = make_page(look.model, look.prompts, look.views, look.note)
    with new_file(path, KINDS[suffix], force) as file:
        file.write(text.encode("utf-8", UNPAIRED))


def make_look_figure(look: LookRecord) -> Figure:
    """Returns all plots of the views as one figure, each view under its title."""
    sections = [section for view in look.views for section in group_plots(view.plots, heading=view.title)]
    if not sections:
        raise UsageError("these views have no plots: write .json or .html instead.")
    return Figure(f"Inside {look.model}", sections)


MOST_ROWS = 400
"""Rows of a table on the page; all are in the data."""


def make_page(name: str, prompts: Sequence[Sequence[str]], views: Sequence[View], note: str = "") -> str:
    """Returns the page of some views of one model; `prompts` are the tokens of each prompt, as shown, and
    the note precedes them."""
    links = (f'<a href="#{view.kind}-{i}">{escape_text(view.title)}</a>' for i, view in enumerate(views))
    body = [
        f'<p class="faint">{escape_text(note)}</p>' * bool(note),
        *map(_draw_prompt, prompts),
        f"<nav>{chr(10).join(links)}</nav>" if len(views) > 1 else "",
        *(line for i, view in enumerate(views) for line in _draw_view(view, i)),
    ]
    lead = " ".join(view.found for view in views if view.found)
    style = read_style(Path(__file__).parent / "view_page.css")
    return write_html("pellucid look", f"Inside {name}", lead, "\n".join(body), style=style)


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
