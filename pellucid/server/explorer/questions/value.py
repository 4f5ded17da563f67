"""`value`: a window of a value's numbers, with the tokens of its rows and columns."""

from typing import Annotated, Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.schema import Range
from pellucid.explanation.address import parse
from pellucid.explanation.reuse import view_bits
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session
from pellucid.server.explorer.window import COLS, ROWS, TableWindow


def answer(
    session: Session,
    trace: HeldTrace,
    at: str,
    rows: Annotated[int, Range(1, 32)] = ROWS,
    cols: Annotated[int, Range(1, 32)] = COLS,
) -> dict[str, Any]:
    """Returns the numbers from the cell `at` on, whose absent indices are 0, over the last two axes: at most
    `rows` × `cols` of them, the other axes fixed; and the first cells of the four windows around it."""
    found = trace.trace
    part = parse(found, at)
    window = TableWindow(found, part.name, tuple(i or 0 for i in part.index), rows, cols)
    about, value = found.about(part.name), found.value(part.name)
    row_axis, col_axis = (None if n is None else about.axes[n] for n in (window.row, window.col))
    shown = (list(window.rows), list(window.cols)) if value.size else ([], [])
    original = session.get_original(trace, part.name)
    return {
        "name": part.name,
        "symbol": about.symbol,
        "meaning": about.meaning,
        "role": found.tape.roles[part.name],
        "shape": list(value.shape),
        "axes": list(about.axes),
        "fixed": [
            {"axis": axis, "i": i, "size": size, "label": show_label(found, part.name, axis, i, window.first)}
            for n, (axis, i, size) in enumerate(zip(about.axes, window.first, value.shape, strict=True))
            if size > 1 and n not in (window.row, window.col)
        ],
        "row_axis": row_axis,
        "col_axis": col_axis,
        "row_size": 1 if window.row is None else value.shape[window.row],
        "col_size": 1 if window.col is None else value.shape[window.col],
        "rows": _label(window, row_axis, shown[0]),
        "cols": _label(window, col_axis, shown[1]),
        "numbers": window.numbers if value.size else [],
        "at": window.template,
        "is_turned": window.is_turned,
        "changed": _find_changes(window, original) if value.size else [],
    } | {side: next and next.address for side, next in window.find_neighbors().items()}


def _label(window: TableWindow, axis: str | None, places: list[int]) -> list[dict[str, Any]]:
    if axis is None:
        return [{"i": 0, "label": None} for _ in places]
    trace, name = window.trace, window.name
    return [{"i": i, "label": show_label(trace, name, axis, i, window.first)} for i in places]


def _find_changes(window: TableWindow, original: Array | None) -> list[list[int]]:
    """Returns the places of the window whose bits differ from those of the unedited run."""
    if original is None:
        return []
    differs = view_bits(window.numbers) != view_bits(window.select(original))
    return [[int(r), int(c)] for r, c in np.argwhere(differs)]
