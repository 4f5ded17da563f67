"""The files of a model's folder: read as untrusted input, and written whole.

A new model is read again while it still has a partial name, and only then gets its own.
"""

import functools
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.base.errors import FileError, file_error, file_errors, quote, show
from pellucid.base.files import (
    Damaged,
    Kind,
    check_output,
    fsync_folder,
    need,
    new_folder,
    partial_folder,
    read_bytes,
    rename_new,
    sweep,
    validating,
    whole_file,
)

log = logging.getLogger(__name__)

MAX_JSON_BYTES = 1 << 24
RECIPE = "recipe.toml"
"""The file that makes a folder a run."""
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def file_in(folder: Path, name: str) -> Path:
    """Returns the path of a file in the folder itself; a link is followed to a file of the link's owner.

    One that leads elsewhere is noted once. Who can only write a link cannot make another user's file be read.
    Hugging Face's cache consists of links from `snapshots/REVISION/` to `blobs/`.
    """
    if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
        raise FileError(f"{folder}: {show(name)} is not the name of a file in this folder.")
    path = folder / name
    with file_errors("read", path):
        if not path.is_symlink():
            return path
    try:
        home, target, found = folder.resolve(), path.resolve(strict=True), path.stat()
    except (OSError, RuntimeError) as error:  # a RuntimeError where it leads back to itself
        reason = getattr(error, "strerror", None) or "it leads back to itself"
        raise FileError(f"{path} is a broken link to {os.readlink(path)}: {reason}.") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if target.is_dir() else "a pipe or a device"
        raise FileError(f"{path} is a link to {target}, which is {what} and not a file.")
    cache = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
    if target.parent in (home, cache):
        return path
    if path.lstat().st_uid != found.st_uid:
        raise FileError(f"{path} is a link to {target}, a file of another user. Put the file itself there.")
    _note_link(path, target)
    return path


@functools.cache
def _note_link(path: Path, target: Path) -> None:
    log.warning("%s is a link to %s", path, target)


def has_file(folder: Path, name: str) -> bool:
    """Returns whether the folder has a file of that name, or a link, wherever that leads."""
    try:
        return (folder / name).is_file() or (folder / name).is_symlink()
    except PermissionError as error:
        raise file_error("read", folder, error) from None
    except (OSError, ValueError):  # a name that no file can have
        return False


def restore_model(place: Path) -> None:
    """Restores the model of a run where a process was killed while replacing it."""
    if has_file(place.parent, RECIPE) and not os.path.lexists(place):
        sweep(place)


def read_table(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Returns the table of a JSON file; raises where it is too long or has a key twice."""
    data = read_bytes(path, limit)
    with validating(path):
        return parse_table(data)


def parse_table(data: bytes) -> dict[str, Any]:
    """Returns the table of a JSON text; call it inside `files.validating`."""
    try:
        found = json.loads(data, object_pairs_hook=_check_unique)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON: {quote(error)}") from None
    need(isinstance(found, dict), f"it is {type(found).__name__}, not a table of keys")
    return dict(found)


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the table; raises for a key that comes twice, of which readers take the first or the last."""
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


Read = Callable[[Path], object]
_MODEL_FILES = re.compile(
    r"config\.json|generation_config\.json|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
    r"|tokenizer\.(json|model)|(tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|merges\.txt"
    r"|chat_template\.(jinja|json)|origin\.json|bill\.json"
)
"""The files of a model's folder. A folder with any other file is not replaced."""


def _why_not_folder(path: Path) -> str:
    if not path.is_dir():
        return "it is a file"
    parts = {
        entry.name: entry.is_file() and bool(_MODEL_FILES.fullmatch(entry.name)) for entry in path.iterdir()
    }
    if others := sorted(name for name, is_part in parts.items() if not is_part):
        return f"it holds {others[0]}"
    return "" if "config.json" in parts else "it has no config.json"


def _why_not_gguf(path: Path) -> str:
    if not path.is_file():
        return "it is a folder"
    with path.open("rb") as file:
        return "" if file.read(4) == b"GGUF" else "it does not begin with GGUF"


MODEL_FOLDER = Kind("a model folder", _why_not_folder)
GGUF_FILE = Kind("a GGUF file", _why_not_gguf)


@contextmanager
def new_model_folder(path: Path, force: bool, read: Read) -> Iterator[Path]:
    """Yields a folder to write a model into; it gets its name once `read` has opened it."""
    with new_folder(path, MODEL_FOLDER, force) as new, _rename_errors(new, path):
        yield new
        _check_readable(new, path, read)


@contextmanager
def new_model_file(path: Path, force: bool, read: Read) -> Iterator[BinaryIO]:
    """Yields a file to write a GGUF model into; it gets its name once `read` has opened it."""
    check_output(path, GGUF_FILE, force)
    with file_errors("write", path):
        with partial_folder(path) as scratch, _rename_errors(scratch / path.name, path):
            new = scratch / path.name
            with new.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _check_readable(new, path, read)
            check_output(path, GGUF_FILE, force)  # it may have come while the block ran
            os.replace(new, path) if force else rename_new(new, path)
        fsync_folder(path.parent)


def _check_readable(new: Path, path: Path, read: Read) -> None:
    try:
        read(new)
    except FileError as error:
        raise type(error)(f"cannot write {path}, because it could not be read again: {error}") from None


@contextmanager
def _rename_errors(new: Path, path: Path) -> Iterator[None]:
    """Replaces the partial name in errors with the path of the output."""
    try:
        yield
    except FileError as error:
        raise type(error)(str(error).replace(str(new), str(path))) from None
