"""The runs in some folders, and how each stands."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pellucid.base.errors import PellucidError
from pellucid.formats.checkpoint_manifest import CHECKPOINTS
from pellucid.training.history.log import read_milestones
from pellucid.training.saving.run_folder import LOG, RECIPE, RunFolder

DEEP = 3
"""Levels of folders that are searched for runs."""


def list_runs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Returns the figures of every run in some folders: the one that moved last is the first."""
    paths = dict.fromkeys(path for folder in folders for path in find_runs(folder))
    return sorted(map(describe_run, paths), key=lambda row: row["age"])


def find_runs(folder: Path, deep: int = DEEP) -> Iterator[Path]:
    """Yields every run folder, one with a recipe or a log; nothing is searched inside a run."""
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


def describe_run(path: Path) -> dict[str, Any]:
    """Returns the figures of a run; a broken one does not hide the others."""
    unknown = ("steps", "loss", "best", "best_step", "gap", "learned", "tokens", "why", "saved")
    row: dict[str, Any] = {"name": str(path), "state": "broken", "step": 0} | dict.fromkeys(unknown)
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
    if kind in ("start", "resume", "rescheduled"):
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
