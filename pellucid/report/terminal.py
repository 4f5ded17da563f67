"""A report as lines of text: its notes, its tables, and its views with their plots in characters."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from pellucid.base.columns import format_columns, shorten, wrap
from pellucid.base.formatting import escape_controls
from pellucid.report.items import Entry, Item, Line, Lines, Table, View, ViewTable

MOST_ROWS = 30
"""Rows of a view's table that are printed; all are in the data."""
WIDEST = 44
"""Columns of one cell of text, at most."""


def format_blocks(blocks: Iterable[Sequence[Item]], width: int = 80) -> Iterator[str]:
    """Yields the lines, an empty one between blocks, without control characters that a name may have."""
    is_first = True
    for block in blocks:
        lines = [escape_controls(line, keep="") for item in block for line in _format_item(item, width)]
        yield from [""] * (bool(lines) and not is_first)
        yield from lines
        is_first = is_first and not lines


def _format_item(item: Item, width: int) -> Iterable[str]:
    if isinstance(item, str):
        return [item] if isinstance(item, Line) else wrap(item, width)
    if isinstance(item, Table):
        return _format_columns(item, width)
    if isinstance(item, View):
        return format_view(item, width)
    return item.lines(width) if isinstance(item, Lines) else ()


def _format_columns(table: Table, width: int) -> Iterator[str]:
    rows, headings = list[Sequence[str]](), dict[str, str]()
    for row in table.rows:
        if len(row) == 1:  # a heading has its own line, and so may be longer than the column
            mark = f"#{len(headings)}"
            headings[mark] = shorten(row[0], width)
            row = [mark, *[""] * (len(table.rows[0]) - 1)]
        rows.append(row)
    for line in format_columns(rows, width, table.fixed, table.first, table.most):
        yield headings.get(line, line)


def format_view(view: View, width: int = 100, has_plots: bool = True) -> Iterator[str]:
    """Yields the lines of a view."""
    yield view.title
    for line in view.formula.splitlines():
        yield f"  {line}"
    for table in view.tables:
        yield ""
        yield from format_table(table, width)
    for plot in view.plots if has_plots else ():
        from pellucid.report.text import write_text

        yield ""
        yield from write_text(plot, min(width - 12, 80))
    if view.notes:
        yield ""
    for note in view.notes:
        yield from textwrap.wrap(note, width)


def format_table(table: ViewTable, width: int = 100) -> Iterator[str]:
    """Yields the caption and the rows under their columns, as far as they fit the width."""
    shown = [[format_entry(cell, table.decimals) for cell in row] for row in table.rows[:MOST_ROWS]]
    lines = [list(table.columns), *shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    is_text = [any(isinstance(row[i], str) for row in table.rows) for i in range(len(widths))]
    if table.caption:
        yield table.caption
    for line in lines:
        yield _join(line[: len(widths)], widths, is_text)
    if (hidden := len(table.columns) - len(widths)) > 0:
        yield f"… {hidden} more column{'s' * (hidden > 1)}: {', '.join(table.columns[len(widths) :])}"
    if (more := len(table.rows) - MOST_ROWS) > 0:
        yield f"… {more:,} more row{'s' * (more > 1)}"


def format_entry(cell: Entry, decimals: int) -> str:
    """Returns a cell as it is printed.

    >>> [format_entry(cell, 3) for cell in (None, 7, 0.12345, 1e-9, "a" * 60)][:4]
    ['', '7', '0.123', '1e-09']
    """
    if cell is None:
        return ""
    if isinstance(cell, float):
        small = cell != 0 and abs(cell) < 0.5 * 10.0**-decimals
        return f"{cell:.3g}" if small else f"{cell:,.{decimals}f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    text = escape_controls(cell, keep="")
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _join(cells: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    parts = (
        cell.ljust(wide) if left else cell.rjust(wide)
        for cell, wide, left in zip(cells, widths, is_text, strict=True)
    )
    return "  ".join(parts).rstrip()
