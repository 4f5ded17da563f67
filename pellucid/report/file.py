"""A figure written to a file, by the ending of its name; only a figure of this program is ever replaced."""

from pathlib import Path

from pellucid.base.errors import UsageError
from pellucid.base.files import Kind, check_output, new_file
from pellucid.report.figure import Figure
from pellucid.report.page import write_page
from pellucid.report.png import check_matplotlib, write_png
from pellucid.report.svg import write_svg

WRITERS = {".html": write_page, ".svg": write_svg, ".png": write_png}
MARKS = {
    ".html": b'<meta name="generator" content="pellucid plot">',
    ".svg": b'data-generator="pellucid plot"',
    ".png": b"Software\0pellucid plot",
}
"""The bytes by which a figure of this program is recognized, among its first ones."""
BEGIN = 4096


def _why_not_ours(path: Path) -> str:
    if not path.is_file():
        return "it is not a file"
    with path.open("rb") as file:
        begin = file.read(BEGIN)
    return "" if MARKS[path.suffix.lower()] in begin else "it has no mark of `pellucid plot`"


FIGURE_FILE = Kind("a picture", _why_not_ours)


def check_figure_output(path: Path, force: bool = False) -> None:
    """Raises where a figure could not be written to this path, before anything is drawn."""
    if path.name and path.suffix.lower() not in WRITERS:
        raise UsageError(
            f"{path} does not end in .html, .svg or .png, and other formats cannot be written: "
            f"use -o {path.stem}.html."
        )
    if path.suffix.lower() == ".png":
        check_matplotlib()
    check_output(path, FIGURE_FILE, force)


def write_figure(path: Path, figure: Figure, force: bool = False) -> None:
    """Writes a figure as an HTML page, SVG or PNG."""
    check_figure_output(path, force)
    data = WRITERS[path.suffix.lower()](figure)
    with new_file(path, FIGURE_FILE, force) as file:
        file.write(data)
