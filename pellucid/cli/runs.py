"""`pellucid runs`: the runs that are here, and how each stands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.cli.options import Json

WIDE = 1000
"""Columns where the output is not a terminal."""
DEEP = 3
"""Levels of folders that are searched for runs."""
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
    from pellucid.errors import FileError

    asked = folders or [Path("runs")]
    for folder in asked:
        if folders and not folder.is_dir():
            raise FileError(f"there is no folder {folder}; runs are in the folders that `out` named.")
    paths = dict.fromkeys(path for folder in asked for path in find_runs(folder))
    rows = sorted(map(_describe_run, paths), key=lambda row: row["age"])
    if json:
        from json import dumps

        print(dumps(rows, ensure_ascii=False, indent=1))
        return
    if not rows:
        where = ", ".join(map(str, asked))
        print(f"no runs in {where}. `pellucid train FILE` makes one; `pellucid runs FOLDER` looks elsewhere.")
        return
    _table(rows)


def find_runs(folder: Path, deep: int = DEEP) -> Iterator[Path]:
    """Yields every run folder, one with a recipe or a log; nothing is searched inside a run."""
    from pellucid.training.saving.manifest import CHECKPOINTS
    from pellucid.training.saving.run_folder import LOG, RECIPE

    if (folder / LOG).is_file() or ((folder / RECIPE).is_file() and (folder / CHECKPOINTS).is_dir()):
        yield folder
    elif deep:
        try:
            inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
        except OSError:  # not there, or not ours to read
            return
        for path in inside:
            if not path.name.startswith("."):
                yield from find_runs(path, deep - 1)


def _describe_run(path: Path) -> dict[str, Any]:
    """Returns the figures of a run; a broken one does not hide the others."""
    import time

    from pellucid.errors import PellucidError
    from pellucid.training.history.log import read_milestones
    from pellucid.training.saving.run_folder import LOG, RunFolder

    row: dict[str, Any] = {"name": str(path), "state": "broken", "step": 0, "steps": None, "loss": None}
    row |= {
        "best": None,
        "best_step": None,
        "gap": None,
        "learned": None,
        "tokens": None,
        "why": None,
        "saved": None,
    }
    log = path / LOG
    try:
        row["age"] = max(0.0, time.time() - (log if log.exists() else path).stat().st_mtime)
        status = RunFolder(path).read_status()
        row |= {"state": status.state, "step": status.step, "saved": status.step or None}
        for line in read_milestones(log) if log.exists() else ():
            _read(row, line)
    except (PellucidError, OSError, TypeError, ValueError) as error:
        row |= {"state": "broken", "why": str(error), "age": row.get("age", 0.0)}
    return row


def _read(row: dict[str, Any], line: dict[str, Any]) -> None:
    """Adds one line of a log to the row of its run."""
    kind = line["kind"]
    row["step"] = int(line.get("step", row["step"]))
    row["why"] = line.get("why")
    if kind in ("start", "resume"):
        row["steps"] = _number(line, "steps")
    elif kind == "step":
        loss, smoothed = _number(line, "loss"), _number(line, "smoothed")
        row |= {"loss": loss if smoothed is None else smoothed, "tokens": _number(line, "tokens")}
    elif kind == "evaluation" and _better(loss := _number(line, "loss"), row["best"]):
        row |= {"best": loss, "best_step": line.get("step")}
        row |= {key: _number(line, key) for key in ("gap", "learned")}


def _number(line: dict[str, Any], key: str) -> Any:
    """Returns a figure of a line, None where it has none; a ValueError where it is not a number."""
    value = line.get(key)
    if value is None or type(value) in (int, float):
        return value
    raise ValueError(f"its log is damaged: {key} is {value!r}, not a number.")


def _better(loss: float | None, best: float | None) -> bool:
    return loss is not None and (best is None or loss < best)


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from pellucid.cli.console import Console
    from pellucid.cli.narrow import GAP, columns_that_fit
    from pellucid.columns import shorten

    console = Console(highlight=False)
    if not console.is_terminal:  # a program that reads it wants one line for each run
        console = Console(highlight=False, width=WIDE)
    cells = [_cells(row) for row in rows]
    known = [heading for heading in cells[0] if any(cell[heading] for cell in cells)]
    widths = {heading: max(map(cell_len, [heading, *(cell[heading] for cell in cells)])) for heading in known}
    # A long name is shortened where a name of usual length still leaves room for figures, and last of all.
    kept = columns_that_fit(widths | {"run": min(widths["run"], USUAL)}, console.width, OMITTED_FIRST)
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


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Returns the text under each heading; empty where a figure is not known."""
    from pellucid.cli.progress import FORMS
    from pellucid.format import escape_controls

    forms = dict.fromkeys(("loss", "best", "best_step", "gap"), FORMS["loss"])
    forms |= {"best_step": "{:,}".format, "learned": FORMS["learned"], "tokens": _count}
    steps = f"/{row['steps']:,}" if row["steps"] is not None else ""
    figures = {
        key.replace("best_step", "at"): "" if row[key] is None else form(row[key])
        for key, form in forms.items()
    }
    named = {"run": escape_controls(row["name"], keep=""), "state": row["state"]}
    return named | {"step": f"{row['step']:,}{steps}"} | figures | {"age": _age(row["age"])}


def _count(count: float) -> str:
    """999, 12.3k, 4.56M, 7.89G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:g}"


def _age(seconds: float) -> str:
    """Returns an age in the largest unit that fits."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
