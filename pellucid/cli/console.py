"""The console that every command prints to."""

from rich import console


class Console(console.Console):
    def on_broken_pipe(self) -> None:
        """The reader of our output, such as `head`, has left: that is for `main`, and no failed check."""
        raise BrokenPipeError
