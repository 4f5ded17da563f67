"""Files of ours: written whole or not at all, and read as strictly as a stranger's must be."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.errors import FileError

PARTIAL = ".partial"
_COUNT = itertools.count()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into; it gets its name when the block ends well, and is gone when it does not.

    Until then its name is its own, so two that write the same file do not write into each other's.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}-{next(_COUNT)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        settle(path.parent)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """Have the disk remember the names in a folder: a rename is lost with the power until this is done."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON: {error}.") from None


def read_format(path: Path, what: str, format: str, version: int) -> dict[str, Any]:
    """The table of a JSON file of ours, which says its format and a version that we know."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != format:
        raise FileError(f'{path} is no {what}: it does not say "format": "{format}".')
    if data.get("version") != version:
        found = data.get("version")
        older = isinstance(found, int) and found < version
        raise FileError(
            f"{path} has {what} format {found!r}; this version of Pellucid reads {version}. "
            f"Use the version that wrote it{'' if older else ', or a newer one'}."
        )
    return data


class Damaged(Exception):
    """What is wrong inside a file; `strict` adds which file it is."""


def need(holds: bool, complaint: str) -> None:
    if not holds:
        raise Damaged(complaint)


@contextlib.contextmanager
def strict(path: Path) -> Iterator[None]:
    """In this block a broken `need` is a FileError about the file."""
    try:
        yield
    except Damaged as error:
        raise FileError(f"{path} is damaged: {error}.") from None
