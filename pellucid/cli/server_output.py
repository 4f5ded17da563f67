"""Output of the commands that serve: lines that a script waits for, and the exit code of each signal."""

import signal

import typer

from pellucid.cli.terminal import drop_output


def say(text: str) -> None:
    """Prints a line at once; a server goes on where its reader has left, as `head -1` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def exit_by_signal(number: int | None) -> None:
    """Ends the command as the signal that ended its server wants it: 0 for SIGTERM, which is how a server is
    meant to be ended."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        raise typer.Exit(129)
