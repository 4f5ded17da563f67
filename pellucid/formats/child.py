"""A Python program in a process group of its own, which ends with this process, also where that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

_LIFELINE = """
import os, signal, sys, threading
lifeline = os.dup(0)  # ends when the parent does
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
def watch():
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
"""


def run_child(
    program: str, arguments: Sequence[str], variables: Mapping[str, str], wait: Callable[[], object]
) -> tuple[int, str]:
    """Runs the text of a program with `sys` imported, and calls `wait` ten times a second until it ends.

    Returns its exit code, negative where a signal ended it, and all its output, which is kept in memory: the
    disk may be what failed.
    """
    reading, writing = os.pipe()
    try:
        # -P: a file pip.py of the current folder is not pip
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _LIFELINE + program, *arguments],
            env=os.environ | variables, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            while True:
                try:
                    output, _ = child.communicate(timeout=0.1)
                    return child.returncode, output.decode("utf-8", errors="replace")
                except subprocess.TimeoutExpired:
                    wait()
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
    finally:
        os.close(reading)
        os.close(writing)
