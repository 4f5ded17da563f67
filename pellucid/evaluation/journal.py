"""The journal of an evaluation: a file that keeps the scores of each batch as soon as it is computed.

It lies beside the output until that is written. A key says all that decides the scores of a batch
(`scoring.hash_model` and `hash_inputs`), so a journal may serve any evaluation and never gives a score of
another model or text. One process at a time writes it. A line that was cut off by a crash is removed, and its
batch computed again.
"""

import base64
import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, file_errors
from pellucid.base.files import Kind, check_format, check_output, need, validating, write_line
from pellucid.evaluation.scoring import TargetScores

FORMAT, VERSION = "pellucid-evaluation-journal", 1
HEADER = f'{{"format": "{FORMAT}", "version": {VERSION}}}\n'.encode()
SUFFIX = ".partial"
"""What the name of a journal adds to that of the output."""
MOST_BYTES = 1 << 26
"""Of one line."""
_TYPES = {"nll": "<f8", "rank": "<i4"}


def journal_path(output: Path) -> Path:
    """Returns where the journal of an output lies."""
    return output.with_name(output.name + SUFFIX)


def _why_not(path: Path) -> str:
    if not path.is_file():
        return "it is not a file"
    with path.open("rb") as file:
        first = file.readline(len(HEADER))
    return (
        ""
        if HEADER.startswith(first) or FORMAT.encode() in first
        else f'it does not say "format": "{FORMAT}"'
    )


JOURNAL = Kind("the journal of an evaluation", _why_not)


class JournalFile(MutableMapping[str, TargetScores]):
    """Scores by key, in a file; a context manager that holds its lock."""

    def __init__(self, path: Path) -> None:
        check_output(path, JOURNAL, force=True)
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        with file_errors("write", path):
            self._file = _open_locked(path)
        try:
            self._read_lines()
        except BaseException:
            os.close(self._file)
            raise

    def _read_lines(self) -> None:
        """Finds the place of every line, and removes one that is not complete."""
        with file_errors("read", self.path), open(self.path, "rb") as file:
            at, first = 0, file.readline(MOST_BYTES)
            if first.endswith(b"\n"):
                with validating(self.path):
                    check_format(self.path, _parse(first, 1), "journal of an evaluation", FORMAT, VERSION)
                at = len(first)
                for number, line in enumerate(iter(lambda: file.readline(MOST_BYTES), b""), 2):
                    if not line.endswith(b"\n"):
                        break
                    with validating(self.path):
                        self._places[_read_key(_parse(line, number), number)] = (at, len(line))
                    at += len(line)
        with file_errors("write", self.path):
            os.ftruncate(self._file, at)
            if not at:
                write_line(self._file, HEADER)

    def __getitem__(self, key: str) -> TargetScores:
        at, size = self._places[key]
        with file_errors("read", self.path):
            line = os.pread(self._file, size, at)
        with validating(self.path):
            return _read_scores(_parse(line, at), key)

    def __setitem__(self, key: str, scores: TargetScores) -> None:
        arrays = {name: np.asarray(getattr(scores, name), kind).tobytes() for name, kind in _TYPES.items()}
        encoded = {name: base64.b64encode(data).decode() for name, data in arrays.items()}
        line = (json.dumps({"key": key, **encoded}) + "\n").encode()
        with file_errors("write", self.path):
            at = os.fstat(self._file).st_size
            write_line(self._file, line)
        self._places[key] = (at, len(line))

    def __delitem__(self, key: str) -> None:
        raise TypeError("a journal only grows")

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __enter__(self) -> "JournalFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the file as it is; one without scores is removed."""
        if not self._places:
            self.remove()
        with contextlib.suppress(OSError):
            os.close(self._file)

    def remove(self) -> None:
        """Removes the file, once the output is written."""
        self._places = {}
        with contextlib.suppress(OSError):
            self.path.unlink()


def _open_locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise FileError(
                f"{path} is being written by another evaluation: wait until it has ended, or give another "
                "output."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOSYS):  # a disk without locks
                os.close(file)
                raise
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        os.close(file)  # the evaluation that held it has just ended and removed it


def _parse(line: bytes, place: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        need(False, f"line {place} is not JSON; remove the file to begin again")


def _read_key(data: Any, number: int) -> str:
    is_entry = isinstance(data, dict) and set(data) == {"key", *_TYPES}
    need(
        is_entry and all(isinstance(value, str) for value in data.values()), f"line {number} is not an entry"
    )
    return str(data["key"])


def _read_scores(data: Any, key: str) -> TargetScores:
    arrays = {}
    for name, kind in _TYPES.items():
        try:
            found = base64.b64decode(data[name], validate=True)
        except ValueError:
            found = b"?"
        size = np.dtype(kind).itemsize
        need(len(found) % size == 0, f"the entry {key[:16]} has a bad {name}; remove the file to begin again")
        arrays[name] = np.frombuffer(found, kind)
    scores = TargetScores(**arrays)
    need(len(scores.nll) == len(scores.rank), f"the entry {key[:16]} has unequal numbers of nll and rank")
    is_possible = bool(np.isfinite(scores.nll).all() and (scores.rank >= 0).all())
    need(is_possible, f"the entry {key[:16]} has an nll that is not finite, or a negative rank")
    return scores
