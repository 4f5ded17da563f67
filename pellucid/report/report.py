"""A report: a result as it is shown. It has a title, one sentence that says what was found, tables, plots,
notes and data, and one writer each for the terminal, the page, JSON and the notebook.

    class Evaluation(Reported):
        def report(self) -> Report: ...

A result that is `Reported` is printed, shown in a notebook and saved by its report.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_bool, check_path

if TYPE_CHECKING:  # drawings are imported when there is something to draw
    from pellucid.report.figure import Figure, Plot
    from pellucid.report.file import ReportFile

Entry = str | int | float | None
"""A cell of a table; a float is shown rounded, and None as an empty cell."""


class Reported:
    """A result that has a report, by which it is printed, shown in a notebook and saved."""

    def report(self) -> "Report":
        """Returns the result as it is shown."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.report().to_text()

    def _repr_html_(self) -> str:
        from pellucid.report.html import write_notebook

        return write_notebook(self.report())

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Writes the result as the ending of the name says: .json with every number, .html, or a picture."""
        from pellucid.report.file import save

        save(self.report(), Path(check_path("path", path)), check_bool("force", force))


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
    """HTML for what a terminal cannot show, or a table in place of lines."""

    item: Table | Callable[[], Iterable[str]]


Item = str | Table | View | Lines | OnPage
"""A part of a report; a text is a note, which is wrapped."""


@dataclass(frozen=True)
class Report(Reported):
    """A result as it is shown: `blocks` of what belongs together, then the pictures of `draw`."""

    title: str
    found: str = ""
    """What was found, in one sentence."""
    blocks: Sequence[Sequence[Item]] = ()
    file: "ReportFile | None" = None
    """The files that it is saved as."""
    to_data: Callable[[], Mapping[str, Any]] = dict
    """Returns every number in full, as JSON has it."""
    draw: "Callable[[], Figure] | None" = None
    """Returns the pictures: of a page, below its numbers, and of picture files."""
    style: str = ""
    """Rules of its page that follow those of all pages."""

    def report(self) -> "Report":
        return self

    @property
    def views(self) -> list[View]:
        """The looks inside a model, each with its own tables and plots."""
        return [item for block in self.blocks for item in block if isinstance(item, View)]

    def to_text(self, width: int = 80) -> str:
        """Returns the lines for a terminal of this width."""
        from pellucid.report.terminal import format_report

        return "\n".join(format_report(self, width))

    def to_html(self) -> str:
        """Returns the page, which needs nothing from elsewhere."""
        from pellucid.report.html import write_html

        return write_html(self)

    def to_json(self) -> str:
        """Returns every number as JSON, with the format of its file."""
        from pellucid.report.file import format_json

        return format_json(self)
