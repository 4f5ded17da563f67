"""The command line: one file per command.

Exit codes: 0 all right, 1 a check failed, 2 asked wrongly, 130 interrupted.
"""

import os
import sys
import warnings


def main() -> None:
    """Run a command; what a person asked wrongly is told in one message, without a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot write Σ shows ? for it
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        sys.exit(_run())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"pellucid: {error.strerror or error}.", file=sys.stderr)
        sys.exit(2)


def _run() -> int:
    import typer.main
    from typer._click.exceptions import ClickException

    from pellucid.cli.app import app
    from pellucid.errors import PellucidError

    # Numbers that overflow are shown as what they are, ∞; NumPy need not warn of them as well.
    warnings.simplefilter("ignore", RuntimeWarning)
    command = typer.main.get_command(app)
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
        error.show()
        return int(error.exit_code)
    except PellucidError as error:
        print(f"pellucid: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print(
            "pellucid: the memory is full; a smaller model, a shorter text or a narrower --dtype needs less.",
            file=sys.stderr,
        )
        return 2
