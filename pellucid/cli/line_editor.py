"""Lines from a terminal, with the editing, history and completion of a shell; or from a pipe.

The history is a file in the user's data folder, one JSON line per message, readable by the user alone.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from pellucid.base.errors import PellucidError, TokenError
from pellucid.base.files import find_user_folder, make_folders, whole_file, write_line

MOST_LINE = 1 << 24
"""Bytes of a line that are read: more than any context holds."""
MOST_ENTRIES, MOST_BYTES, LONGEST_ENTRY = 1000, 1 << 22, 1 << 16
"""Messages and bytes of the history that is kept, and characters of a message in it."""


class LineEditor:
    """Reads lines; at a terminal they can be edited, completed and recalled."""

    def __init__(self, complete: Callable[[str, str], Iterable[str]] | None = None) -> None:
        self.is_terminal = sys.stdin.isatty()
        self._readline = _import_readline() if self.is_terminal else None
        self._complete, self._found = complete, list[str]()
        self.history = MessageHistory() if self.is_terminal else None
        if self._readline is not None:
            self._set_up(self._readline)

    def _set_up(self, readline: ModuleType) -> None:
        is_gnu = "libedit" not in (readline.__doc__ or "")
        readline.parse_and_bind("tab: complete" if is_gnu else "bind ^I rl_complete")
        if is_gnu:  # a paste of several lines is one text
            readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_completer_delims(" \t\n=")
        readline.set_completer(self._find)
        readline.set_auto_history(False)
        readline.clear_history()
        for entry in self.history.entries if self.history else []:
            readline.add_history(entry)

    def read(self, prompt: str, begun: str = "") -> str:
        """Returns the next line, of which `begun` is there already; raises EOFError at the end."""
        if not self.is_terminal:
            return _read_pipe()
        if self._readline is None:
            return input(prompt)
        if begun:
            self._readline.set_startup_hook(lambda: self._readline and self._readline.insert_text(begun))
        try:
            return input(prompt)
        finally:
            self._readline.set_startup_hook()

    def remember(self, text: str) -> None:
        """Adds a message to the history."""
        if self._readline is not None and text.strip():
            self._readline.add_history(text)
        if self.history is not None:
            self.history.add(text)

    def _find(self, word: str, number: int) -> str | None:
        if number == 0 and self._readline is not None and self._complete is not None:
            before = self._readline.get_line_buffer()[: self._readline.get_begidx()]
            self._found = sorted(found for found in self._complete(before, word) if found.startswith(word))
        return self._found[number] if number < len(self._found) else None


def _import_readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # some systems come without it
        return None
    return readline


def _read_pipe() -> str:
    data = sys.stdin.buffer.readline(MOST_LINE + 1)
    if not data:
        raise EOFError
    if len(data) > MOST_LINE:
        raise TokenError(f"a line of standard input has more than {MOST_LINE:,} bytes.")
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise TokenError(
            f"a line of standard input is not UTF-8: its byte {error.start} is 0x{data[error.start]:02x}. "
            "Convert it first, for example with iconv."
        ) from None


class MessageHistory:
    """The messages of earlier chats, the oldest first. What the disk refuses is kept for this chat alone."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or find_user_folder("data") / "chat-history.jsonl"
        self.entries = self._read()
        if self._size() > MOST_BYTES:
            self._shorten()

    def add(self, text: str) -> None:
        """Adds a message, unless it is the last one again."""
        if not text.strip() or len(text) > LONGEST_ENTRY or self.entries[-1:] == [text]:
            return
        self.entries.append(text)
        with contextlib.suppress(OSError, PellucidError):
            make_folders(self.path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            file = os.open(self.path, flags, 0o600)
            try:
                write_line(file, _format(text))
            finally:
                os.close(file)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _read(self) -> list[str]:
        """Returns the newest entries; a line that is not one is ignored."""
        if not self.path.is_file():  # none yet, or a pipe, which would never end
            return []
        try:
            with self.path.open("rb") as file:
                file.seek(max(self._size() - MOST_BYTES, 0))
                lines = file.read(MOST_BYTES).splitlines()[-MOST_ENTRIES:]
        except OSError:
            return []
        entries = []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(line)
                entries += [entry] if isinstance(entry, str) else []
        return entries

    def _shorten(self) -> None:
        with contextlib.suppress(OSError, PellucidError), whole_file(self.path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(b"".join(map(_format, self.entries)))


def _format(text: str) -> bytes:
    return f"{json.dumps(text)}\n".encode()
