"""Looks of objects at a Python prompt and in a notebook: a short line, and HTML with every text escaped."""

import html
from collections.abc import Iterable, Sequence

from pellucid.base.formatting import escape_controls

_MONO = "white-space:pre;font-family:monospace;margin:0"
LISTED = 3
"""The number of entries in a short line."""
ROWS = 400
"""The largest number of rows of a listing."""


def summarize(kind: str, what: str, entries: Sequence[Sequence[str]]) -> str:
    """
    >>> summarize("Weights", "2 arrays", [("a", "[3]"), ("b", "[2, 2]")])
    '<Weights: 2 arrays: a [3], b [2, 2]>'
    """
    named = ", ".join(" ".join(entry) for entry in entries[:LISTED]) + ", …" * (len(entries) > LISTED)
    return escape_controls(f"<{kind}: {what}{f': {named}' * bool(entries)}>", keep="")


def escape_html(text: object) -> str:
    """Returns a text as HTML, with visible escapes for what is not printable."""
    return html.escape(escape_controls(str(text)))


def line(text: str) -> str:
    """Returns lines of text as HTML."""
    return f"<div style='{_MONO}'>{escape_html(text)}</div>" if text else ""


def table(caption: str, rows: Iterable[Sequence[str]], align: str = "right") -> str:
    """Returns a table; the first entry of a row is its heading."""
    cell = f"<td style='{_MONO};padding:0 .6em;text-align:{align}'>"
    body = "".join(f"<tr>{''.join(f'{cell}{escape_html(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"{line(caption)}<table>{body}</table>"


def listing(summary: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table that a click on its summary opens."""
    rest = [[f"… and {len(rows) - ROWS:,} more", *[""] * (len(heading) - 1)]] if len(rows) > ROWS else []
    return branch(summary, (table("", (heading, *rows[:ROWS], *rest), "left"),), is_open=False)


def branch(summary: str, inner: Iterable[str], is_open: bool = True) -> str:
    """Returns a node of a tree that folds: its summary, and below it `inner`, which is HTML already."""
    body = "".join(inner)
    if not body:
        return f"<div style='{_MONO};padding-left:1.1em'>{escape_html(summary)}</div>"
    return (
        f"<details{' open' * is_open}><summary style='{_MONO}'>{escape_html(summary)}</summary>"
        f"<div style='padding-left:1.5em'>{body}</div></details>"
    )
