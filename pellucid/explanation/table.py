"""A value, or a slice of one, as tables over its last two free axes, folded to the space available.

What does not fit is folded into "…"; the entry that the address names, the largest entries and the ends stay.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pellucid.base import notebook
from pellucid.base.formatting import escape_controls, format_number
from pellucid.explanation.address import Address, format_address
from pellucid.explanation.trace import IN_PYTHON, More, Trace
from pellucid.explanation.trace_file import make_labels_entry, make_values_entry
from pellucid.reference.op import Array

WIDTH = 100
"""Columns of a text that is not printed to a terminal."""
LABEL = 24
"""The longest text of a token in a heading."""
SMALL = 64
"""A value of more numbers than this also gets a summary line."""
_PARTNER = {"t": "s", "s": "t"}


@dataclass(frozen=True, eq=False, repr=False)
class Slice:
    """A part of a value with more than one number: print it, or take `value`, an array over `axes`.

    A table that does not fit into `lines` lines and the width of the terminal is folded around the `top`
    largest entries of each axis.
    """

    trace: Trace
    part: Address
    top: int = 6
    lines: int | None = 40

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def address(self) -> str:
        return format_address(self.trace, self.part)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that are whole."""
        axes = self.trace.about(self.name).axes
        return tuple(axis for axis, i in zip(axes, self.part.index, strict=True) if i is None)

    @property
    def value(self) -> Array:
        value: Array = self.trace.value(self.name)[
            tuple(slice(None) if i is None else i for i in self.part.index)
        ]
        return value

    def texts(self, axis: str) -> list[str | None]:
        """Returns the token at each index of an axis, None where there is none."""
        return self.trace.texts(self.name, axis, self.part.index)

    @property
    def title(self) -> str:
        """The address and the sizes of the axes that are whole: pattern[h=3] [t=12 s=12]."""
        axes, shape = self.axes, self.value.shape
        if self.address == self.name:
            axes, shape = self.trace.about(self.name).axes, self.trace.value(self.name).shape
        sizes = (f"{axis}={size}" for axis, size in zip(axes, shape, strict=True))
        return f"{self.address} [{' '.join(sizes)}]"

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON, width: int | None = None) -> Iterator[str]:
        """Yields the tables as lines of text of at most `width` columns: by default those of the terminal."""
        layout = _lay_out(self, digits, width or shutil.get_terminal_size((WIDTH, 24)).columns, more)
        yield from layout.before
        for table in layout.tables:
            if table.title:
                yield f"{table.title}:"
            widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
            for row in table.rows:
                yield "  " + "  ".join(map(str.rjust, row, widths)).rstrip()
        yield from layout.after

    def to_data(self) -> dict[str, Any]:
        """Returns the numbers in full, as plain data; a whole value as a trace file stores it."""
        trace, name = self.trace, self.name
        about = trace.about(name)
        fixed = {axis: i for axis, i in zip(about.axes, self.part.index, strict=True) if i is not None}
        is_whole = self.address == name
        axes, value = (about.axes, trace.value(name)) if is_whole else (self.axes, self.value)
        data: dict[str, Any] = {"name": name}
        if not is_whole:
            data |= {"at": self.address, "index": fixed}
            data |= {
                "tokens": {axis: trace.label(name, axis, i, self.part.index) for axis, i in fixed.items()}
            }
        data |= {"shape": list(value.shape), "axes": list(axes), "role": trace.tape.roles[name]}
        return data | make_labels_entry(trace, name, axes, self.part.index) | make_values_entry(value)

    def __str__(self) -> str:
        return escape_controls("\n".join(self.to_lines()))

    def __repr__(self) -> str:
        return escape_controls(f"<Slice {self.title}: {_format_totals(self, 5) or 'no numbers'}>", keep="")

    def _repr_html_(self) -> str:
        layout = _lay_out(self, 5, 2 * WIDTH, IN_PYTHON)
        tables = [notebook.table(table.title, table.rows) for table in layout.tables]
        return "".join(map(notebook.line, layout.before)) + "".join(
            (*tables, *map(notebook.line, layout.after))
        )


# ---- the layout, for text and HTML


class _Table(NamedTuple):
    title: str
    rows: list[list[str]]
    """The first row holds the headings of the columns, where they have any."""
    is_folded: bool
    top_helps: bool


class _Layout(NamedTuple):
    before: list[str]
    tables: list[_Table]
    after: list[str]


def _lay_out(part: Slice, digits: int, width: int, more: More) -> _Layout:
    """Lays the tables out in the lines and columns available, or whole where lines have no limit."""
    about, value, axes = part.trace.about(part.name), part.value, part.axes
    symbol = about.symbol if about.symbol != part.name else ""
    meaning = f"{symbol}, {about.meaning}" if symbol and about.meaning else about.meaning
    before = [f"{part.title}{_format_tokens(part)}   {meaning}".rstrip()]
    if about.transposed and value.ndim == 2:
        value, axes = value.T, axes[::-1]
        before.append(f"shown as the formulas use it, {symbol}[{','.join(axes)}]")
    if value.size == 0:
        return _Layout([*before, "(empty)"], [], [])
    if value.ndim == 1 and _fits_in_a_row(part, value, axes[0], digits, width):
        value, axes = value[None], ("", *axes)
    elif value.ndim == 1:
        value, axes = value[:, None], (*axes, "")
    room = math.inf if part.lines is None else max(4, part.lines - len(before) - 3)
    leads, tables, used = list(np.ndindex(value.shape[:-2])), list[_Table](), 0
    for lead in leads:
        title = ", ".join(_format_heading(part, axis, i) for axis, i in zip(axes, lead, strict=False))
        most = room - bool(title) - bool(axes[-1])
        table = _make_table(
            replace(part, part=_fill_in(part, lead)),
            title,
            value[lead],
            axes[-2:],
            digits,
            most,
            math.inf if room == math.inf else width,
        )
        used += len(table.rows) + bool(title)
        if used > room and tables:
            break
        tables.append(table)
    after = []
    if rest := len(leads) - len(tables):
        other = f'{more.at}"{format_address(part.trace, _fill_in(part, leads[len(tables)]))}"'
        after.append(
            f"… and {rest:,} more table{'s' * (rest > 1)}: {other} for the next, {more.lines} for all"
        )
    if any(table.is_folded for table in tables):
        larger = f"{more.top}{2 * part.top} for more of the largest entries, " * any(
            table.top_helps for table in tables
        )
        after.append(f"… is what does not fit here: {larger}{more.lines} for everything")
    if (value.size > SMALL or after) and (totals := _format_totals(part, digits)):
        after.append(f"of all {value.size:,}: {totals}")
    return _Layout(before, tables, after)


def _make_table(
    part: Slice, title: str, grid: Array, axes: tuple[str, ...], digits: int, room: float, width: float
) -> _Table:
    weights = np.where(np.isnan(grid), np.inf, np.where(grid == -np.inf, 0, np.abs(grid)))
    rows, more_rows = _fold(
        weights.max(1), _find_partner(part, axes[0]), part.top, lambda places: len(list(places)) <= room
    )
    shown = [i for i in rows if i is not None]
    beside = ["", *("…" if i is None else _format_heading(part, axes[0], i) for i in rows)]

    @cache
    def column(j: int | None) -> list[str]:
        head = "…" if j is None else _format_heading(part, axes[1], j)
        return [head, *("…" if i is None or j is None else _format_cell(grid[i, j], digits) for i in rows)]

    def fits(places: Iterable[int | None]) -> bool:
        total = 2.0 + max(map(len, beside))
        for place in places:
            total += 2 + max(map(len, column(place)))
            if total > width:
                return False
        return True

    columns, more_columns = _fold(weights[shown].max(0), _find_partner(part, axes[1]), part.top, fits)
    table = [list(row) for row in zip(beside, *map(column, columns), strict=True)]
    is_folded = None in rows or None in columns
    return _Table(title, table if axes[1] else table[1:], is_folded, more_rows or more_columns)


def _fold(
    weights: Array, asked: list[int], top: int, fits: Callable[[Iterable[int | None]], bool]
) -> tuple[list[int | None], bool]:
    """Returns the shown indices of an axis, None for each gap; and whether a larger `top` shows more."""
    size = len(weights)
    if fits(range(size)):
        return list(range(size)), False
    largest = [int(i) for i in np.argsort(-weights, kind="stable")[: top + 1 + len(asked)]]
    order = list(dict.fromkeys([*asked, *largest[:1], 0, size - 1, *largest[:top]]))
    chosen = {order[0]}
    for place in order[1:]:
        if fits(_with_gaps(chosen | {place}, size)):
            chosen.add(place)
    if not chosen.issuperset(order):
        return _with_gaps(chosen, size), False
    further = next((place for place in largest if place not in chosen), None)
    return _with_gaps(chosen, size), further is not None and fits(_with_gaps(chosen | {further}, size))


def _with_gaps(chosen: set[int], size: int) -> list[int | None]:
    """Returns the indices in order, with None for a gap; a gap of one index is that index."""
    places, after = list[int | None](), 0
    for place in [*sorted(chosen), size]:
        places += [after] if place == after + 1 else [None] if place > after else []
        places += [place] if place < size else []
        after = place + 1
    return places


def _find_partner(part: Slice, axis: str) -> list[int]:
    """Returns the index of the address's token on the other position axis: of [t=8], the key s=8."""
    axes, partner = part.trace.about(part.name).axes, _PARTNER.get(axis)
    if partner not in axes or (i := part.part.index[axes.index(partner)]) is None:
        return []
    place = i + part.trace.size(part.name, axis) - part.trace.size(part.name, partner)
    return [place] if 0 <= place < part.trace.size(part.name, axis) else []


def _fits_in_a_row(part: Slice, row: Array, axis: str, digits: int, width: int) -> bool:
    total = 2
    for j, number in enumerate(row):
        total += 2 + max(len(_format_heading(part, axis, j)), len(_format_cell(number, digits)))
        if total > width:
            return False
    return True


def _format_heading(part: Slice, axis: str, i: int) -> str:
    if not axis:
        return ""
    label = part.trace.label(part.name, axis, i, part.part.index)
    return f"{axis}={i}" + (f" {label if len(label) <= LABEL else label[:LABEL] + '…'}" if label else "")


def _format_cell(value: Any, digits: int) -> str:
    return str(int(value)) if value.dtype.kind in "iu" else format_number(float(value), digits)


def _format_tokens(part: Slice) -> str:
    """Returns the tokens at the indices of the address."""
    places = zip(part.trace.about(part.name).axes, part.part.index, strict=True)
    fixed = [(axis, i) for axis, i in places if i is not None and part.trace.size(part.name, axis) > 1]
    texts = [
        _format_heading(part, axis, i)
        for axis, i in fixed
        if part.trace.label(part.name, axis, i, part.part.index)
    ]
    return f"  ({', '.join(texts)})" if texts else ""


def _fill_in(part: Slice, lead: tuple[int, ...]) -> Address:
    """Returns the address of one of the tables."""
    rest = iter(lead)
    return Address(part.name, tuple(next(rest, None) if i is None else i for i in part.part.index))


def _format_totals(part: Slice, digits: int) -> str:
    """Returns the sum, minimum and maximum with their addresses; empty where no number is finite."""
    value = part.value
    finite = value[np.isfinite(value)]
    if not finite.size:
        return ""

    def extreme(find: Callable[[Any], Any]) -> str:
        place = iter(np.unravel_index(int(find(value)), value.shape))
        index = tuple(int(next(place)) if i is None else i for i in part.part.index)
        number = part.trace.value(part.name)[index]
        return f"{_format_cell(number, digits)} at {part.trace.address(part.name, index)}"

    total = _format_cell(finite.sum(), digits)
    return f"sum {total}, smallest {extreme(np.nanargmin)}, largest {extreme(np.nanargmax)}"
