"""The files of a model's folder: read as strictly as a stranger's must be, and written one by one."""

import json
import os
import re
from pathlib import Path
from typing import Any

from pellucid.errors import FileError, file_error, quote, show
from pellucid.files import Damaged, need, sweep, validating, whole_file

LARGEST_JSON = 1 << 24
RECIPE = "recipe.toml"
"""What the folder of a run has."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,200}")


def within(folder: Path, name: str) -> Path:
    """The file of that name in the folder itself: no path, and no link that leads elsewhere.

    Hugging Face's own cache is made of links, from `snapshots/REVISION/` to `blobs/`; those are followed.
    """
    if not _PLAIN.fullmatch(name) or name in (".", ".."):
        raise FileError(f"{folder}: {show(name)} is not the name of a file in this folder.")
    try:
        home, target = folder.resolve(), (folder / name).resolve()
    except (OSError, RuntimeError):
        raise FileError(f"{folder / name} is a link that leads nowhere.") from None
    cache = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if target.parent not in (home, cache):
        raise FileError(
            f"{folder / name} is a link to {target}, outside the folder. Put the file itself there."
        )
    return folder / name


def has(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except PermissionError as error:
        raise file_error("read", folder, error) from None
    except (OSError, ValueError):  # a name that no file can have
        return False


def put_back(place: Path) -> None:
    """Gives the model of a run its name again where a process was killed while it replaced it."""
    if has(place.parent, RECIPE) and not os.path.lexists(place):
        sweep(place)


def read_table(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """The table of a JSON file: not too long, and no key twice."""
    data = read_bytes(path, largest)
    with validating(path):
        return table(data)


def read_bytes(path: Path, largest: int) -> bytes:
    try:
        if not path.is_file():
            raise FileError(f"{path} is not there.")
        if path.stat().st_size > largest:
            raise FileError(f"{path} has {path.stat().st_size:,} bytes; such a file has at most {largest:,}.")
        return path.read_bytes()
    except OSError as error:
        raise file_error("read", path, error) from None


def table(data: bytes) -> dict[str, Any]:
    """JSON that is a table; inside `files.validating`."""
    try:
        found = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON: {quote(error)}") from None
    need(isinstance(found, dict), f"it is {type(found).__name__}, not a table of keys")
    return dict(found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that comes twice one reader takes the first, another the last: they would see two models."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        need(key not in found, f"the key {show(key)} comes twice")
        found[key] = value
    return found


def write_table(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, ensure_ascii=False, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    with whole_file(path) as file:
        file.write(data)
