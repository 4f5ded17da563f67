"""Calls into the Rust libraries that read and apply a tokenizer, `tokenizers` and `tiktoken`.

On a hostile file they panic. A panic is not an `Exception`, and Rust prints its text to file descriptor 2
before Python hears of it; here it becomes one error in our own words, and nothing is printed.
"""

import contextlib
import functools
import os
import tempfile
import threading
from collections.abc import Callable
from typing import TypeVar

from pellucid.base.errors import FileError, PellucidError, quote

T = TypeVar("T")

_LOCK = threading.Lock()
_CALLS = set[object]()
"""The calls under way, of all threads: while there is one, file descriptor 2 leads into `_buffer`."""
_STDERR: int | None = None
"""A copy of file descriptor 2 as it was before."""


def call_native(complaint: str, call: Callable[[], T], error: type[PellucidError] = FileError) -> T:
    """Returns what the call returns; a panic or an exception becomes "COMPLAINT: reason."."""
    this, panicked = object(), False
    try:
        _hold_stderr(this)
        return call()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as panic:
        panicked = True
        raise error(f"{complaint}: {quote(panic)}.") from None
    finally:
        try:
            _release_stderr(this, panicked)
        finally:
            _release_stderr(this, panicked)  # once more, where an interrupt came while it was being released


def _hold_stderr(call: object) -> None:
    global _STDERR
    with _LOCK:
        _CALLS.add(call)
        if _STDERR is None:
            try:
                _STDERR = os.dup(2)
            except OSError:  # a stream that is closed needs no silence
                return
            os.dup2(_buffer(), 2)


def _release_stderr(call: object, panicked: bool) -> None:
    """Gives file descriptor 2 back; what others wrote meanwhile follows, unless it may be a panic's text."""
    global _STDERR
    with _LOCK:
        _CALLS.discard(call)
        if _CALLS or _STDERR is None:
            return
        os.dup2(_STDERR, 2)
        saved, _STDERR = _STDERR, None
        os.close(saved)
        if size := os.fstat(_buffer()).st_size:
            held = os.pread(_buffer(), size, 0)
            os.ftruncate(_buffer(), 0)
            os.lseek(_buffer(), 0, os.SEEK_SET)
            if not panicked:
                with contextlib.suppress(OSError):
                    os.write(2, held)


@functools.cache
def _buffer() -> int:
    """Returns an anonymous file of this process; a forked child shares it, and both only append."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
