"""The command line: a file for each command, or two that belong together; and the terminal code they share.

Exit codes: 0 success; 1 a check failed (verify, replay, compare, mark, explain); 2 a usage error; 3 a
resource failed (disk, memory, network, the engine of serve); 129, 130 and 143 ended by SIGHUP, SIGINT or
SIGTERM.
"""

import signal
import sys
import warnings
from typing import Any

try:
    from pellucid.base.errors import RESOURCE_ERRNOS
    from pellucid.cli.signals import INTERRUPTED, Terminated, end_by_signals, print_end
    from pellucid.cli.terminal import drop_output, print_error, safe_streams
except KeyboardInterrupt:  # in the first moment of a command, which `main` cannot see yet
    raise SystemExit(130) from None

FAILED_CHECK, USAGE, RESOURCE = 1, 2, 3


def main() -> None:
    """Runs a command and ends the process; an error that a person can mend is one message, without a
    traceback."""
    with safe_streams():
        try:
            with end_by_signals():
                sys.exit(_run_safely())
        finally:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                # Nothing is left to do, and Python would print a traceback of where it ends itself.
                signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_safely() -> int:
    try:
        return _run()
    except KeyboardInterrupt:
        print_end(INTERRUPTED)
        return INTERRUPTED
    except Terminated as ended:
        print_end(ended.code)
        return ended.code
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        drop_output()
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich's own consoles, such as that of --help
            drop_output()
            return 0
        raise
    except (MemoryError, RuntimeError) as error:
        if not _is_memory_full(error):
            raise
        print_error("the memory is full; a smaller model, a shorter text or a narrower --dtype needs less.")
        return RESOURCE
    except OSError as error:
        drop_output()
        place = f"{error.filename}: " if error.filename else ""
        print_error(f"{place}{error.strerror or error}.")
        return RESOURCE if error.errno in RESOURCE_ERRNOS else USAGE


def _is_memory_full(error: BaseException) -> bool:
    """Returns whether memory is what failed; for that of the host, torch has no class of its own."""
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return full or "can't allocate memory" in str(error)


def _run() -> int:
    import typer
    from typer._click.exceptions import ClickException

    from pellucid.base.errors import PellucidError
    from pellucid.cli.app import command_tree

    # Numbers that overflow are shown as what they are, ∞; NumPy need not warn of them as well.
    warnings.simplefilter("ignore", RuntimeWarning)
    command = command_tree(*sys.argv[1:2])
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
        print_error(str(error))
        return error.exit_code


def _refuse(error: Any) -> int:
    """Prints what the parser refused, and where its help is; a group without a command has shown its help."""
    if message := error.format_message():
        has_help = getattr(error, "ctx", None) is not None
        print_error(message, last=f"Try: {error.ctx.command_path} --help" if has_help else "")
    return int(error.exit_code)
