"""The one place where text leaves for a terminal: nothing in it can move the cursor, or hide.

Everything that a command prints passes a `SafeStream`: text of files, names, paths, tokens and models reaches
a terminal, and a pipe that may end in one, with visible escapes for control characters; JSON stays the same
JSON. What rich draws itself (colors, the live view) goes past it; our `Console` escapes the text before it is
drawn. The text that a model or a tokenizer writes is exact where it goes to a file or a pipe: `exact_output`.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from pellucid.format import escape_controls


class SafeStream:
    """A text stream that escapes what is written to it."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where rich writes: its own color codes must arrive, and our Console escapes the text."""
        return self.raw

    def write(self, text: str) -> int:
        self.raw.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """In this block standard output and error are safe to print anything to."""
    open_closed_streams()
    before = sys.stdout, sys.stderr
    for stream in before:  # a terminal that cannot write Σ shows ? for it
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = SafeStream(before[0]), SafeStream(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def open_closed_streams() -> None:
    """Opens standard streams that the caller closed (`>&-`, cron, services) on the null device.

    Without this the next file that is opened gets the number of standard output, and what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def exact_output() -> TextIO:
    """Returns standard output for text that is read on: exact in a file or a pipe, safe on a terminal."""
    stream: Any = sys.stdout
    raw: TextIO = getattr(stream, "raw", stream)
    return stream if raw.isatty() else raw
