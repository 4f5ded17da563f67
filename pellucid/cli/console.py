"""The console that every command draws with."""

from collections.abc import Iterable

from rich import console
from rich.segment import Segment

from pellucid.format import escape_controls


class Console(console.Console):
    def on_broken_pipe(self) -> None:
        """The reader of our output, such as `head`, has left: that is for `main`, and no failed check."""
        raise BrokenPipeError

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Text is escaped before rich adds its own control codes, whoever wrote it."""
        return super()._render_buffer(
            part if part.control else Segment(escape_controls(part.text), part.style) for part in buffer
        )
