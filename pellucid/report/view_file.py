"""What looks at a model found, written to a file: JSON with every number, an HTML page, or a picture."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.files import UNPAIRED, check_output, make_json_kind, make_page_kind, new_file
from pellucid.report.figure import Figure, group_plots
from pellucid.report.file import check_figure_output, write_figure
from pellucid.report.view import View
from pellucid.report.view_page import make_page

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

    def as_data(self) -> dict[str, Any]:
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
        text = json.dumps(look.as_data(), ensure_ascii=False, indent=1, allow_nan=False)
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
