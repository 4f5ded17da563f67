"""A report: a result as it is shown. It has a title, one sentence that says what was found, tables, plots,
notes and data, and one writer each for the terminal, the page, JSON and the notebook.

    class Evaluation(Reported):
        def report(self) -> Report: ...

A result that is `Reported` is printed, shown in a notebook and saved by its report.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_bool, check_path
from pellucid.report.items import Item, View

if TYPE_CHECKING:  # drawings are imported when there is something to draw
    from pellucid.report.figure import Figure
    from pellucid.report.file import ReportFile


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
        from pellucid.report.terminal import format_blocks

        return "\n".join(format_blocks(self.blocks, width))

    def to_html(self) -> str:
        """Returns the page, which needs nothing from elsewhere."""
        from pellucid.report.html import write_html

        return write_html(self)

    def to_json(self) -> str:
        """Returns every number as JSON, with the format of its file."""
        from pellucid.report.file import format_json

        return format_json(self)


def report_figure(figure: "Figure") -> Report:
    """Returns a figure as a report of its own: what it shows is the sentence, and the rest its pictures."""
    from pellucid.report.file import FIGURE

    return Report(figure.title, figure.found or figure.note, file=FIGURE, draw=lambda: figure)
