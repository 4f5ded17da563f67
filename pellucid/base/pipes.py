"""Lines of JSON between a process and the one that started it, over standard input and output."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from pellucid.base.errors import UsageError, quote, show


def open_output() -> Callable[[bytes], None]:
    """Returns what writes a line to the parent, from any thread. Standard output becomes standard error, so
    that no library prints between two lines. The process ends where the parent does not read any more."""
    output, lock = os.fdopen(os.dup(1), "wb", buffering=0), threading.Lock()
    os.dup2(2, 1)

    def write(line: bytes) -> None:
        with lock:
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[output.write(rest) :]
            except OSError:  # the parent is gone
                os._exit(0)

    return write


def read_lines(stream: BinaryIO, most: int) -> Iterator[bytes]:
    """Yields the lines of a stream; of a line with more than `most` bytes, the first `most` + 1, and none of
    its rest."""
    while line := stream.readline(most + 1):
        part = line
        while len(part) > most and not part.endswith(b"\n"):
            part = stream.readline(most + 1)
        yield line


def parse_table(line: bytes, what: str, most: int) -> dict[str, Any]:
    """Returns the table that a line of at most `most` bytes states; `what` names it in messages.

    >>> parse_table(b'{"id": 1}', "a question", 100)
    {'id': 1}
    """
    if len(line) > most:
        raise UsageError(f"{what} has at most {most:,} bytes.")
    try:
        found = json.loads(line, object_pairs_hook=_make_table, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be a line of JSON: {quote(error)}.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{what} must be a table, not {show(found)}.")
    return found


def _make_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise UsageError("a key is given twice.")
    return table


def _refuse_constant(name: str) -> None:
    raise UsageError(f"{name} is not a number of JSON.")
