"""The command line: one file per command.

Exit codes: 0 success; 1 a check failed (verify, replay, compare); 2 a usage error; 3 a resource failed (disk,
memory, network); 129, 130 and 143 ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM.
"""

import contextlib
import os
import sys
import warnings
from typing import Any

from pellucid.errors import RESOURCE_ERRNOS

FAILED_CHECK, USAGE, RESOURCE, INTERRUPTED = 1, 2, 3, 130


def main() -> None:
    """Runs a command; an error that a person can mend is one message, without a traceback."""
    from pellucid.cli.terminal import safe_streams

    with safe_streams():
        sys.exit(_run_safely())


def _run_safely() -> int:
    try:
        return _run()
    except KeyboardInterrupt:
        complain("interrupted", prefix="")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        _drop_output()
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich's own consoles, such as that of --help
            _drop_output()
            return 0
        raise
    except (MemoryError, RuntimeError) as error:
        if not _is_memory_full(error):
            raise
        complain("the memory is full; a smaller model, a shorter text or a narrower --dtype needs less.")
        return RESOURCE
    except OSError as error:
        _drop_output()
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror or error}.")
        return RESOURCE if error.errno in RESOURCE_ERRNOS else USAGE


def _is_memory_full(error: BaseException) -> bool:
    """Whether memory is what failed; for that of the host, torch has no class of its own."""
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return full or "can't allocate memory" in str(error)


def _run() -> int:
    import typer
    from typer._click.exceptions import ClickException

    from pellucid.cli.app import command_tree
    from pellucid.errors import PellucidError

    # Numbers that overflow are shown as what they are, ∞; NumPy need not warn of them as well.
    warnings.simplefilter("ignore", RuntimeWarning)
    command = command_tree()
    try:
        # Not `app()`: it turns a reader that has left into exit code 1, which here means a failed check.
        with command.make_context("pellucid", sys.argv[1:]) as context:
            command.invoke(context)
        sys.stdout.flush()
        return 0
    except typer.Exit as done:
        sys.stdout.flush()
        return int(done.exit_code)
    except ClickException as error:
        return _refuse(error)
    except PellucidError as error:
        complain(str(error))
        return error.exit_code


def _refuse(error: Any) -> int:
    """Prints what the parser refused, and where its help is; a group without a command has shown its help."""
    if message := error.format_message():
        has_help = getattr(error, "ctx", None) is not None
        complain(message, last=f"Try: {error.ctx.command_path} --help" if has_help else "")
    return int(error.exit_code)


def complain(message: str, prefix: str = "pellucid: ", last: str = "") -> None:
    """Prints an error; a line break in a name cannot begin a line that looks like another message.

    Where standard error cannot be written (a full disk), the exit code still says what happened.
    """
    first, *more = message.split("\n")
    lines = [f"{prefix}{first}", *(f"  {line}" for line in more), *([last] if last else [])]
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:
        _drop_output(sys.stderr)


def _drop_output(stream: Any = None) -> None:
    """Lets what is still buffered go nowhere, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
