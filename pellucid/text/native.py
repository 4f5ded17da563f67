"""Calls into the Rust libraries that read and apply a tokenizer, `tokenizers` and `tiktoken`.

On a hostile file they panic. A panic is not an `Exception`, and Rust prints its text to file descriptor 2
before Python hears of it; here it becomes one error in our own words, and nothing is printed.
"""

import functools
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from pellucid.errors import FileError, PellucidError, quote

T = TypeVar("T")

_LOCK = threading.Lock()
_CALLS = set[object]()
"""The calls under way, of all threads: while there is one, file descriptor 2 leads nowhere."""
_STDERR: int | None = None
"""A copy of file descriptor 2 as it was before."""


def call_native(complaint: str, call: Callable[[], T], error: type[PellucidError] = FileError) -> T:
    """Returns what the call returns; a panic or an exception becomes "COMPLAINT: reason."."""
    this = object()
    try:
        try:
            _silence_stderr(this)
            return call()
        finally:
            _restore_stderr(this)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as panic:
        raise error(f"{complaint}: {quote(panic)}.") from None
    finally:
        _restore_stderr(this)  # once more, where an interrupt came while it was being restored


def _silence_stderr(call: object) -> None:
    global _STDERR
    with _LOCK:
        _CALLS.add(call)
        if _STDERR is None:
            try:
                _STDERR = os.dup(2)
            except OSError:  # a stream that is closed needs no silence
                return
            os.dup2(_nowhere(), 2)


def _restore_stderr(call: object) -> None:
    global _STDERR
    with _LOCK:
        _CALLS.discard(call)
        if not _CALLS and _STDERR is not None:
            os.dup2(_STDERR, 2)
            saved, _STDERR = _STDERR, None
            os.close(saved)


@functools.cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)
