"""The console that every command draws with."""

from collections.abc import Iterable
from typing import IO

from rich import console
from rich.segment import Segment

from pellucid.base.formatting import escape_controls


class Console(console.Console):
    @property
    def file(self) -> IO[str]:
        """The stream behind those that escape: the codes that rich adds must arrive, the text is escaped.

        A live display puts a proxy of its own before standard output and error, so there may be two to pass.
        """
        file = super().file
        while (behind := getattr(file, "rich_proxied_file", file)) is not file:
            file = behind
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """The reader of our output, such as `head`, has left: that is for `main`, and no failed check."""
        raise BrokenPipeError

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Text is escaped before rich adds its own control codes, wherever it comes from."""
        return super()._render_buffer(
            part if part.control else Segment(escape_controls(part.text), part.style) for part in buffer
        )
