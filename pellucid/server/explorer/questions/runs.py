"""`runs`: the training run that was opened and those in ./runs, and how each stands."""

import hashlib
from pathlib import Path
from typing import Any

from pellucid.base.errors import UsageError, show
from pellucid.base.formatting import escape_controls
from pellucid.server.explorer.session import Session

FOLDER = Path("runs")
"""Where runs are looked for, in the working folder."""
MOST_RUNS = 200


def answer(session: Session) -> dict[str, Any]:
    """Returns the figures of the session's own run and of those in ./runs, as `pellucid runs --json` prints
    them, the one that moved last first. A run has an id, and of its path the last part alone."""
    from pellucid.training.run_listing import describe_run

    paths = list_run_paths(session)
    rows = sorted(map(describe_run, paths[:MOST_RUNS]), key=lambda row: row["age"])
    return {"runs": [_hide_path(row) for row in rows], "omitted": max(len(paths) - MOST_RUNS, 0)}


def list_run_paths(session: Session) -> list[Path]:
    """Returns the folder of the session's own run, and those in ./runs."""
    from pellucid.training.run_listing import find_runs

    own = find_runs(Path(session.source), deep=0)
    paths = {path.resolve(): path for path in (*own, *find_runs(FOLDER))}
    return list(paths.values())


def find_run(session: Session, id: str) -> Path:
    """Returns the folder of a listed run; no other can be named."""
    for path in list_run_paths(session):
        if make_run_id(path) == id:
            return path
    raise UsageError(f"unknown run id {show(id)}: the question `runs` lists the known ones.")


def make_run_id(path: Path) -> str:
    """Returns the first digits of the SHA-256 of a path: a name for a run that tells nothing of its place."""
    return hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _hide_path(row: dict[str, Any]) -> dict[str, Any]:
    path = Path(row["name"])
    name = escape_controls(path.resolve().name, keep="")
    why = row["why"] and escape_controls(str(row["why"]).replace(str(path), name), keep="")
    return row | {"id": make_run_id(path), "name": name, "why": why}
