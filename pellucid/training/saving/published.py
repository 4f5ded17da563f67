"""RUN/model, RUN/adapter and RUN/best: folders that hold a complete model at every moment, replaced at once.

They are ordinary folders, so `cp -r` of one is a model. Tensors are hard links to those of a checkpoint where
the filesystem has such links; the other files are copies, because people edit those. `origin.json` has the
step, and size and SHA-256 of each file. By it the run recognizes its files: one that it did not write, or
that was changed since, is never removed. A folder that has one is moved to `model.kept-1` instead.
"""

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pellucid.base.errors import file_errors
from pellucid.base.files import Kind, new_folder, whole_file
from pellucid.formats.checkpoint_manifest import CHECKPOINTS, checkpoint_name, measure

ORIGIN, FORMAT, VERSION = "origin.json", "pellucid-origin", 1
_TENSORS = ".safetensors"


class Origin(NamedTuple):
    step: int
    loss: float | None
    """On the validation text, where it was measure at this step."""
    files: dict[str, Any]
    """bytes, sha256 and mtime_ns of each file."""


# ---- writing; by the process that has the lock


def publish_checkpoint(target: Path, source: Path, step: int, known: Mapping[str, Any]) -> Path | None:
    """Makes `target` a folder with the files of a part of a checkpoint, whose manifest `known` is."""

    def fill(new: Path) -> None:
        for path in sorted(source.iterdir()):
            _link_or_copy(path, new / path.name)

    return publish(target, fill, step, known=known)


def publish(
    target: Path,
    fill: Callable[[Path], None],
    step: int,
    loss: float | None = None,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Path | None:
    """Replaces `target` by a folder with what `fill` puts into it.

    Returns where the folder that was there before is kept, if it has files that the run did not write.
    """
    kept = None
    with file_errors("write", target):
        if find_foreign(target):
            kept = _keep(target)
        with new_folder(target, OWN_MODEL, force=True) as new:
            fill(new)
            paths = sorted(new.iterdir())
            files = {path.name: _make_entry(path, known.get(f"{target.name}/{path.name}")) for path in paths}
            table = {"format": FORMAT, "version": VERSION, "step": step, "loss": loss, "files": files}
            with whole_file(new / ORIGIN) as file:
                file.write((json.dumps(table, indent=1) + "\n").encode())
    return kept


def _link_or_copy(source: Path, new: Path) -> None:
    if source.suffix == _TENSORS:
        with contextlib.suppress(OSError):  # a filesystem without links, or too many of them
            os.link(source, new)
            return
    with source.open("rb") as old, whole_file(new) as file:
        shutil.copyfileobj(old, file, 1 << 20)


def _keep(target: Path) -> Path:
    """Moves a folder with files that the run did not write aside, under a free name."""
    names = (target.with_name(f"{target.name}.kept-{number}") for number in itertools.count(1))
    kept = next(path for path in names if not os.path.lexists(path))
    os.rename(target, kept)
    return kept


# ---- which files the run wrote


def read_origin(folder: Path) -> Origin | None:
    """Returns the step and files of a folder; None where it has no origin. Raises OSError."""
    try:
        table = json.loads((folder / ORIGIN).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    if not isinstance(table, dict) or (table.get("format"), table.get("version")) != (FORMAT, VERSION):
        return None
    step, loss, files = table.get("step"), table.get("loss"), table.get("files")
    if type(step) is not int or not isinstance(files, dict) or not isinstance(loss, float | None):
        return None
    return Origin(step, loss, files)


def find_foreign(target: Path) -> str:
    """Returns the name of a file there that no run wrote; empty where there is none."""
    if target.is_symlink():
        return f"{target.name}, a link to elsewhere"
    if not target.exists():
        return ""
    if not target.is_dir():
        return f"{target.name}, a file"
    found = read_origin(target)
    names = sorted(os.listdir(target))
    if found is None:
        return next(iter(names), "")
    return next((name for name in names if name != ORIGIN and not _is_own(target, name, found)), "")


def _is_own(folder: Path, name: str, written: Origin) -> bool:
    """Returns whether a file is as the run wrote it, by its time, or by its content where it was copied
    since; or a hard link to a file of its checkpoint."""
    path, entry = folder / name, written.files.get(name)
    if not isinstance(entry, dict) or path.is_symlink() or not path.is_file():
        return False
    source = folder.parent / CHECKPOINTS / checkpoint_name(written.step) / folder.name / name
    about = path.stat()
    if source.exists() and os.path.samestat(about, source.stat()):
        return True
    if about.st_size != entry.get("bytes"):
        return False
    return about.st_mtime_ns == entry.get("mtime_ns") or measure(path)["sha256"] == entry.get("sha256")


def _make_entry(path: Path, known: dict[str, Any] | None) -> dict[str, Any]:
    return (known or measure(path)) | {"mtime_ns": path.stat().st_mtime_ns}


OWN_MODEL = Kind(
    "a model that a run keeps", lambda path: f"it holds {found}" if (found := find_foreign(path)) else ""
)
