"""Opening a text that may be a pipe: one that no program writes into would be waited for without end."""

import contextlib
import os
import stat
import threading
from queue import Empty, Queue
from typing import BinaryIO

from pellucid.base.errors import FileError

SECONDS = 10.0
"""The longest that a pipe may be without a program that writes into it."""


def open_text(file: str) -> BinaryIO:
    """Opens a file; of a pipe that no program writes into, raises after a while, where `open` would wait."""
    if not (os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode)):
        return open(file, "rb")
    opened = Queue[BinaryIO | OSError]()

    def wait_for_writer() -> None:
        try:
            opened.put(open(file, "rb"))  # noqa: SIM115 - closed by who gets it
        except OSError as error:
            opened.put(error)

    waiting = threading.Thread(target=wait_for_writer, daemon=True, name="pellucid-pipe")
    waiting.start()
    try:
        found = opened.get(timeout=SECONDS)
    except Empty:
        with contextlib.suppress(OSError):
            os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))  # lets the thread go
            waiting.join(1.0)
            _close(opened)
        raise FileError(
            f"{file} is a pipe, and for {SECONDS:g} s no program has opened it to write: start that "
            "one first, or name a file."
        ) from None
    if isinstance(found, OSError):
        raise found
    return found


def _close(opened: Queue[BinaryIO | OSError]) -> None:
    with contextlib.suppress(Empty):
        found = opened.get_nowait()
        if not isinstance(found, OSError):
            found.close()
