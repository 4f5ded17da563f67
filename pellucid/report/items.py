"""Parts of a report: notes, tables, views, and what a terminal or a page alone shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # drawings are imported when there is something to draw
    from pellucid.report.figure import Plot

Entry = str | int | float | None
"""A cell of a table; a float is shown rounded, and None as an empty cell."""


@dataclass(frozen=True)
class Table:
    """Rows of text under a first one with the names of the columns; a row of one cell is a heading.

    In a terminal the first column has at most `first` columns and the others `most`; those that do not fit
    come below, each with the first `fixed` ones. On a page a row may have a meaning, and another label.
    """

    rows: Sequence[Sequence[str]]
    first: int = 30
    most: int = 18
    fixed: int = 1
    heading: str = ""
    """Above the table on a page."""
    meanings: Sequence[str] = ()
    is_prose: bool = False
    """Whether the cells are sentences: on a page they begin on the left, and are wrapped."""
    labels: Sequence[str] = ()
    """The first cells on a page, where they are others than in a terminal."""


@dataclass(frozen=True)
class ViewTable:
    """Rows under named columns; a float has this many decimals."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    decimals: int = 4


@dataclass(frozen=True)
class View:
    """What one look inside a model found.

    A function that makes a view takes the prompted model first, then its settings as keywords, all with
    defaults: tokens as ids (`token`, `against`, `answer`, `wrong`, a list `tokens`), another prompt as a
    prompted model (`corrupted`), a head as (layer, head), patterns of names as a list (`names`), and
    `progress(done, total)` where it takes more than two seconds.

    `formula` states what is computed from which recorded names, in one line or a few; `data` holds every
    number in full, as JSON has it (lists, dictionaries, numbers, text, None).
    """

    kind: str
    """The look that made it: "lens", "attribution", …"""
    title: str
    formula: str
    tables: Sequence[ViewTable] = ()
    plots: "Sequence[Plot]" = ()
    notes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    found: str = ""
    """What it shows, in one sentence."""


class Line(str):
    """A line of text that is not wrapped."""


@dataclass(frozen=True)
class Lines:
    """Lines for a width, which a page shows in another way, or as they are."""

    lines: Callable[[int], Iterable[str]]
    is_on_page: bool = False


@dataclass(frozen=True)
class OnPage:
    """What a terminal cannot show, as HTML; or a table or text in place of lines, in a notebook too."""

    item: Table | str | Callable[[], Iterable[str]]


Item = str | Table | View | Lines | OnPage
"""A part of a report; a text is a note, which is wrapped."""
