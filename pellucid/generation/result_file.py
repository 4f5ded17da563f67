"""A file of results: one JSON line for each, written when it comes, so that an interrupted run keeps them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.base.errors import file_errors
from pellucid.base.files import UNPAIRED, Kind, check_output, check_readable, new_file, write_line

KEYS = ("prompt", "text", "ids", "finish")
"""Keys that every line has."""
MOST_BYTES = 1 << 26
"""Of a first line that is read to recognize a file."""


def format_line(result: Mapping[str, Any]) -> str:
    """Returns a result as one line of JSON."""
    return json.dumps(result, ensure_ascii=False)


class ResultFile:
    """A JSONL file that grows by one line for each result.

    It is created, or with `force` an older one is replaced, together with the first result: what is refused
    before leaves everything as it was. Every line is whole, also when the process is killed.
    """

    def __init__(self, path: Path, force: bool = False) -> None:
        check_output(path, RESULTS, force)
        self.path, self._force = path, force
        self._file: int | None = None

    def write(self, result: Mapping[str, Any]) -> None:
        """Writes one line, to the system before this returns."""
        line = f"{format_line(result)}\n".encode("utf-8", UNPAIRED)
        if self._file is None:
            with new_file(self.path, RESULTS, self._force) as file:
                file.write(line)
            with file_errors("write", self.path):
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            return
        with file_errors("write", self.path):
            write_line(self._file, line)

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with file_errors("write", self.path):
                os.fsync(self._file)
            os.close(self._file)


def _why_not(path: Path) -> str:
    check_readable(path)
    if path.is_dir():
        return "it is a folder"
    with path.open("rb") as file:
        first = file.readline(MOST_BYTES)
    try:
        found = json.loads(first) if first else dict.fromkeys(KEYS)
    except (ValueError, RecursionError):
        return "its first line is not JSON"
    known = isinstance(found, dict) and set(KEYS) <= set(found)
    return "" if known else f"its first line does not have the keys {', '.join(KEYS)}"


RESULTS = Kind("a file of results", _why_not)
