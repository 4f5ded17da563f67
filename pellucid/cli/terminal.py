"""The one place where text leaves for a terminal: nothing in it can move the cursor, or hide.

Everything that a command prints passes a `SafeStream`: text of files, names, paths, tokens and models reaches
a terminal, and a pipe that may end in one, with visible escapes for control characters; JSON stays the same
JSON. What rich draws itself (colors, the live view) goes past it; our `Console` escapes the text before it is
drawn. The text that a model or a tokenizer writes is exact where it goes to a file or a pipe: `exact_output`.
"""

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from pellucid.base.errors import TokenError
from pellucid.base.formatting import escape_controls

if TYPE_CHECKING:
    from pellucid.report.report import Report


class SafeStream:
    """A text stream that escapes what is written to it."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    @property
    def rich_proxied_file(self) -> TextIO:
        """The stream to which rich writes: its own color codes must arrive, and our Console escapes the
        text."""
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


def standard_input(most: int | None = None) -> str:
    """Returns the text of standard input, of at most `most` bytes, which must be UTF-8."""
    data = sys.stdin.buffer.read(-1 if most is None else most + 1)
    if most is not None and len(data) > most:
        raise TokenError(f"standard input has more than {most:,} bytes, longer than any context.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenError(
            f"standard input is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}). "
            "Convert it first, for example with iconv."
        ) from None


def count_columns(least: int, most: int, usual: int = 80) -> int:
    """Returns the width of the terminal, `usual` where there is none, within bounds."""
    return min(max(shutil.get_terminal_size((usual, 24)).columns, least), most)


def print_json(data: Any) -> None:
    """Prints plain data as JSON, numbers in full."""
    from json import dumps

    print(dumps(data, ensure_ascii=False, indent=1))


def print_report(report: "Report", json: bool, width: int) -> None:
    """Prints a report as lines of at most `width` columns, or as JSON."""
    print(report.to_json() if json else f"{report.to_text(width)}\n", end="")


def note(text: str) -> None:
    """Prints a line on standard error at once: what is going on, beside the result."""
    print(text, file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Prints a line at once; a server goes on where its reader has left, as `head -1` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def print_error(message: str, prefix: str = "pellucid: ", last: str = "") -> None:
    """Prints an error; a line break in a name cannot begin a line that looks like another message.

    Where standard error cannot be written (a full disk), the exit code still says what happened.
    """
    first, *more = message.split("\n")
    lines = [f"{prefix}{first}", *(f"  {line}" for line in more), *([last] if last else [])]
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:
        drop_output(sys.stderr)


@contextlib.contextmanager
def print_warnings(kind: type[Warning]) -> Iterator[None]:
    """Prints each warning of a kind that the block gives as a message of ours, however often it comes."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", kind)
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, kind):
                print_error(f"warning: {message}")
            else:
                before(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def drop_output(stream: Any = None) -> None:
    """Lets what is still buffered go nowhere, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
