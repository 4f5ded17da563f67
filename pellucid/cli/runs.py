"""`pellucid runs`: the runs that are here, and how each stands."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.cli.options import Json
from pellucid.cli.terminal import print_json

GAP = 2
"""Spaces between two columns."""
WIDE = 1000
"""Columns where the output is not a terminal."""
OMITTED_FIRST = ("at", "tokens", "gap", "age", "learned", "loss", "best", "step")
"""The columns that a narrow terminal omits, in this order; the name and the state stay."""
USUAL, SHORTEST = 28, 8
"""Columns of a name before figures are preferred to more of it, and those that it has always."""


def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders that hold some; ./runs by itself.")
    ] = None,
    json: Json = False,
) -> None:
    """The runs in some folders: state, step, loss, best validation loss, tokens, and when they last moved.

    Where the entropy floor is known, also the gap to it and the fraction learned. A narrow terminal shows
    fewer figures; --json has them all.
    """
    from pellucid.base.errors import FileError
    from pellucid.training.run_listing import list_runs

    asked = folders or [Path("runs")]
    for folder in asked:
        if folders and not folder.is_dir():
            raise FileError(f"there is no folder {folder}; runs are in the folders that `out` named.")
    rows = list_runs(asked)
    if json:
        print_json(rows)
        return
    if not rows:
        where = ", ".join(map(str, asked))
        print(f"no runs in {where}. `pellucid train FILE` makes one; `pellucid runs FOLDER` looks elsewhere.")
        return
    _table(rows)


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from pellucid.base.columns import shorten
    from pellucid.cli.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # a program that reads it wants one line for each run
        console = Console(highlight=False, width=WIDE)
    cells = [_cells(row) for row in rows]
    known = [heading for heading in cells[0] if any(cell[heading] for cell in cells)]
    widths = {heading: max(map(cell_len, [heading, *(cell[heading] for cell in cells)])) for heading in known}
    # A long name is shortened where a name of usual length still leaves room for figures, and last of all.
    kept = _fit_columns(widths | {"run": min(widths["run"], USUAL)}, console.width, OMITTED_FIRST)
    room = console.width - sum(widths[heading] + GAP for heading in kept[1:])
    styles = {"running": "green", "interrupted": "yellow", "stopped": "red", "broken": "red"}
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for heading in kept:
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right", no_wrap=True)
    for cell in cells:
        cell["run"] = shorten(cell["run"], max(room, SHORTEST))
        state = Text(cell["state"], styles.get(cell["state"], ""))
        table.add_row(*(state if heading == "state" else Text(cell[heading]) for heading in kept))
    console.print(table)
    for row in rows:
        if row["state"] == "broken":
            console.print(Text(f"{row['name']}: {row['why']}", "red"), soft_wrap=True)


def _fit_columns(widths: Mapping[str, int], room: int, order: Iterable[str]) -> list[str]:
    """Returns the columns that fit beside each other in `room`; where they do not, those of `order` leave.

    >>> _fit_columns({"run": 10, "state": 8, "loss": 6, "tokens": 6}, 30, ["tokens", "loss"])
    ['run', 'state', 'loss']
    """
    kept = list(widths)
    for name in order:
        if sum(widths[column] + GAP for column in kept) - GAP <= room:
            break
        if name in kept:
            kept.remove(name)
    return kept


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Returns the text under each heading; empty where a figure is not known."""
    from pellucid.base.formatting import escape_controls, format_count
    from pellucid.cli.progress import FORMS

    forms = dict.fromkeys(("loss", "best", "best_step", "gap"), FORMS["loss"])
    forms |= {"best_step": "{:,}".format, "learned": FORMS["learned"], "tokens": format_count}
    steps = f"/{row['steps']:,}" if row["steps"] is not None else ""
    figures = {
        key.replace("best_step", "at"): "" if row[key] is None else form(row[key])
        for key, form in forms.items()
    }
    named = {"run": escape_controls(row["name"], keep=""), "state": row["state"]}
    return named | {"step": f"{row['step']:,}{steps}"} | figures | {"age": _age(row["age"])}


def _age(seconds: float) -> str:
    """Returns an age in the largest unit that fits."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
