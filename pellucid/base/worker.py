"""Workers: Python programs in processes of their own, which answer over standard input and output.

    with Worker("-m", "pellucid.data.encoders", tokenizer) as worker:
        answer = worker.ask(request, read_answer)

A worker imports no module of the current folder, and has a session of its own, so that Ctrl-C at a terminal
is its parent's. It ends when its input does, also where the parent is killed. For an event loop,
`pellucid.server.async_worker` is the same.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Self, TypeVar, cast

import pellucid
from pellucid.base import errors
from pellucid.base.errors import PellucidError, quote

T = TypeVar("T")

PIPES: Mapping[str, Any] = MappingProxyType(
    {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
)
"""How every worker is started, whether a thread or an event loop waits for it."""
FORGET_SECONDS = 3600.0
"""An end is forgotten after an hour: a process that runs for months may meet a rare fault twice."""


def make_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of a worker. -P: a file of the current folder is not imported as a module."""
    return [sys.executable, "-P", *arguments]


def make_environment(variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Returns the variables of a process that imports this package, also where it is not installed."""
    found, root = os.environ | variables, Path(pellucid.__file__).parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), found.get("PYTHONPATH"))))
    return found


class Worker:
    """A process, which runs until the `with` block ends; `arguments` are those of Python, and `environment`
    is by default that of `make_environment`."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str] | None = None, stderr: int | None = None
    ) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            make_command(arguments), env=environment or make_environment(), stderr=stderr, **PIPES
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, request: bytes, read: Callable[[BinaryIO], T], seconds: float | None = None) -> T:
        """Sends a request and returns what `read` reads of the answer; raises EOFError where the process ends
        before, or is ended because it takes longer.

        Ctrl-C ends it too: an answer that is not read now would be taken for that of the next request.
        """
        stdin, stdout = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        guard = None if seconds is None else threading.Timer(seconds, self.process.kill)
        try:
            if guard is not None:
                guard.start()
            stdin.write(request)
            stdin.flush()
            return read(stdout)
        except BrokenPipeError:
            raise EOFError from None
        except BaseException as error:
            if not isinstance(error, Exception):
                self.close()
            raise
        finally:
            if guard is not None:
                guard.cancel()

    def close(self) -> None:
        """Ends the process, and those that it started."""
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a part of a request may still be buffered
                    pipe.close()

    def kill(self) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


_LIFELINE = """
import os, signal, sys, threading
lifeline = os.dup(0)  # ends when the parent does
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
def watch():
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
"""


def run_program(
    program: str, arguments: Sequence[str], variables: Mapping[str, str], wait: Callable[[], object]
) -> tuple[int, str]:
    """Runs the text of a program with `sys` imported, and calls `wait` ten times a second until it ends.

    Returns its exit code, negative where a signal ended it, and all its output, which is kept in memory: the
    disk may be what failed. It ends with this process, also where that is killed.
    """
    worker = Worker(
        *("-c", _LIFELINE + program, *arguments),
        environment=os.environ | variables,
        stderr=subprocess.STDOUT,
    )
    process = worker.process
    lifeline, process.stdin = cast(BinaryIO, process.stdin), None  # which `communicate` would close
    with worker, lifeline:
        while True:
            try:
                output, _ = process.communicate(timeout=0.1)
                return process.returncode, output.decode("utf-8", errors="replace")
            except subprocess.TimeoutExpired:
                wait()


# ---- its first line, its end, and how often it is started again


def describe_failure(error: Exception) -> bytes:
    """Returns the first line of a process that cannot do what it was started for."""
    message = str(error) if isinstance(error, PellucidError) else quote(error)
    return json.dumps({"failed": {"message": message, "kind": type(error).__name__}}).encode() + b"\n"


def read_ready(line: bytes) -> Any:
    """Returns what a process is ready with, by its first line; raises the error with which it failed.

    >>> read_ready(b'{"ready": {"slots": 4}}')
    {'slots': 4}
    """
    found = json.loads(line)
    if "failed" in found:
        kind = getattr(errors, found["failed"]["kind"], PellucidError)
        raise kind(found["failed"]["message"])
    return found["ready"]


def name_end(returncode: int) -> str:
    """Returns what ended a process.

    >>> name_end(-15), name_end(1)
    ('the signal 15', 'the exit code 1')
    """
    if returncode == -signal.SIGKILL:
        return "the signal 9, perhaps for want of memory"
    return f"the signal {-returncode}" if returncode < 0 else f"the exit code {returncode}"


class RestartLimit:
    """Allows some restarts within an hour, and none beyond."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self._restarts: list[float] = []

    def allow(self) -> bool:
        """Returns whether a process that ended now may be started again; the restart is counted where it
        may."""
        now = self._clock()
        self._restarts = [moment for moment in self._restarts if now - moment < FORGET_SECONDS]
        if len(self._restarts) >= self.most:
            return False
        self._restarts.append(now)
        return True


# ---- in the process itself


def open_output() -> Callable[[bytes], None]:
    """Returns what writes a line to the parent, from any thread. Standard output becomes standard error, so
    that no library prints between two lines. The process ends where the parent does not read any more."""
    output, lock = os.fdopen(os.dup(1), "wb", buffering=0), threading.Lock()
    os.dup2(2, 1)

    def write(line: bytes) -> None:
        with lock:
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[output.write(rest) :]
            except OSError:  # the parent is gone
                os._exit(0)

    return write
