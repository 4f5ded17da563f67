"""The manifest of a checkpoint: size and SHA-256 of each of its files, so that damage is found.

Nothing here imports torch: commands that only list runs start fast.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pellucid.base.errors import file_error, show
from pellucid.base.files import need, read_bytes, read_format, validating
from pellucid.formats.folder import MAX_JSON_BYTES

FORMAT, VERSION = "pellucid-checkpoint", 2
MANIFEST, MODEL, ADAPTER, BEST = "manifest.json", "model", "adapter", "best"
CHECKPOINTS = "checkpoints"
PARTIAL = ".tmp-"
"""The prefix of a folder whose checkpoint is not complete yet."""
_NAME = re.compile(r"step-(\d{7,15})")


def checkpoint_name(step: int) -> str:
    return f"step-{step:07d}"


def parse_step(name: str) -> int | None:
    """Returns the step of a checkpoint's name; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found and checkpoint_name(int(found[1])) == name else None


def measure(path: Path) -> dict[str, Any]:
    """Returns the entry of one file: its size and SHA-256."""
    with path.open("rb") as file:
        return {
            "bytes": os.fstat(file.fileno()).st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def format_manifest(step: int, entries: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a manifest, which are unique: any other was changed."""
    table = {"format": FORMAT, "version": VERSION, "step": step, "files": entries}
    table["sha256"] = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return (json.dumps(table, indent=1) + "\n").encode()


def list_files(folder: Path) -> set[str]:
    """Returns the files of a checkpoint except hidden ones, which nothing reads."""
    found = set()
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in links]
        ours = [name for name in (*files, *links) if not name.startswith(".")]
        found |= {(Path(place) / name).relative_to(folder).as_posix() for name in ours}
    return found - {MANIFEST}


def check_contents(folder: Path) -> None:
    """Raises a FileError unless the folder is, byte for byte, what was saved."""
    entries = check_sizes(folder)
    with validating(folder), _reading(folder):
        for name, entry in entries.items():
            need(measure(folder / name) == entry, f"the content of {name} is not what was saved")


def check_sizes(folder: Path) -> dict[str, Any]:
    """Returns the entries of the manifest; raises a FileError unless each file is there with its size.

    This is fast and finds missing and truncated files; `check_contents` also finds changed ones.
    """
    path = folder / MANIFEST
    data = read_bytes(path, MAX_JSON_BYTES)
    table = read_format(path, "checkpoint", FORMAT, VERSION)
    step, entries = table.get("step"), table.get("files")
    with validating(path):
        need(type(step) is int and step >= 0 and isinstance(entries, dict), "it lists no files")
        need(data == format_manifest(step or 0, entries or {}), "it is not as it was written")
    with validating(folder), _reading(folder):
        wanted = checkpoint_name(step or 0)
        need(folder.resolve().name == wanted, f"its files are those of {wanted}")
        found, listed = list_files(folder), dict(entries or {})
        for name, entry in listed.items():
            need(name in found, f"{show(name)} is missing")
            need(isinstance(entry, dict) and set(entry) == {"bytes", "sha256"}, f"{name} has no checksum")
            about = (folder / name).lstat()
            need(stat.S_ISREG(about.st_mode), f"{name} is not a regular file")
            need(about.st_size == entry["bytes"], f"{name} has {about.st_size} bytes, not {entry['bytes']}")
        for name in found:
            need(name in listed, f"{show(name)} does not belong there")
    return listed


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise file_error("read", error.filename or folder, error) from None
