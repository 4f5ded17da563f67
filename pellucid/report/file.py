"""Files of a report, by the ending of the name: JSON, a page, or a picture; each replaces only its kind."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.files import UNPAIRED, Kind, check_output, make_json_kind, new_file

if TYPE_CHECKING:
    from pellucid.report.report import Report

VERSION = 1
BEGIN = 4096
PICTURES = (".html", ".svg", ".png")
PICTURE_MARKS = {".svg": b'data-generator="pellucid plot"', ".png": b"Software\0pellucid plot"}
"""The bytes by which a picture of this program is recognized, among its first ones."""


@dataclass(frozen=True)
class ReportFile:
    """The files that the results of a verb are saved as."""

    verb: str
    """The command, which a page names as its generator."""
    name: str
    """With its article: "an evaluation"."""
    format: str = ""
    """That a JSON file says; empty where there is none."""
    endings: tuple[str, ...] = (".json", *PICTURES)

    def kind(self, path: Path) -> Kind:
        """Returns what may be replaced by a file of this name."""
        if path.suffix.lower() == ".json":
            return make_json_kind(self.name, self.format)
        marks = {".html": f'<meta name="generator" content="pellucid {self.verb}">'.encode(), **PICTURE_MARKS}
        mark = marks.get(path.suffix.lower(), b"")

        def why_not(path: Path) -> str:
            if not path.is_file():
                return "it is not a file"
            with path.open("rb") as file:
                begin = file.read(BEGIN)
            return "" if mark in begin else f"it has no mark of `pellucid {self.verb}`"

        return Kind(self.name, why_not)

    def check(self, path: Path, force: bool = False) -> None:
        """Raises where a report could not be written to this path, before anything is computed."""
        if path.name not in ("", "..") and path.suffix.lower() not in self.endings:
            *others, last = self.endings
            raise UsageError(
                f"{path} does not end in {', '.join(others)} or {last}, and other formats cannot be written: "
                f"use -o {path.stem or self.verb}.html."
            )
        if path.suffix.lower() == ".png":
            from pellucid.report.png import check_matplotlib

            check_matplotlib()
        check_output(path, self.kind(path), force)


FIGURE = ReportFile("plot", "a picture", endings=PICTURES)
ANY = ReportFile("report", "a report", "pellucid-report")
"""The files of a report that is no verb's own."""


def save(report: "Report", path: Path, force: bool = False) -> None:
    """Writes a report whole or not at all; `force` replaces another file of its kind."""
    file = report.file or ANY
    file.check(path, force)
    with new_file(path, file.kind(path), force) as written:
        written.write(_encode(report, path.suffix.lower()))


def _encode(report: "Report", ending: str) -> bytes:
    if ending == ".json":
        return format_json(report).encode("utf-8", UNPAIRED)
    if ending == ".html":
        return report.to_html().encode("utf-8", UNPAIRED)
    figure = report.draw() if report.draw else None
    if figure is None or not figure.sections:
        raise UsageError("this report has no plots: write .json or .html instead.")
    if ending == ".svg":
        from pellucid.report.svg import write_svg

        return write_svg(figure)
    from pellucid.report.png import write_png

    return write_png(figure)


def format_json(report: "Report") -> str:
    """Returns every number of a report, with its format and version first."""
    head = {"format": (report.file or ANY).format, "version": VERSION}
    return json.dumps({**head, **report.to_data()}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


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
