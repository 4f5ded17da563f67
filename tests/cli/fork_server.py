"""Command lines in processes of their own, at a hundredth of what a start of Python and torch takes.

A server process imports everything once and forks a child for each command line. The child gets the
standard streams (a pipe, a terminal, a closed one) and limits on memory and time, and `pellucid.cli.main`
runs in it as in a process that was just started.
"""

import contextlib
import errno
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEMORY = 6 << 30
"""Bytes of address space that a command line may have beyond what the server has."""
SECONDS = 20
"""Of processor time that a command line may take; twice as long by the clock, since others compute too."""
STREAMS = ("stdin", "stdout", "stderr")
LATE_IMPORTS = (
    "rich._emoji_codes",
    "rich.live",
    "rich.markup",
    "rich.progress",
    "tests.cli.container",
    "tests.cli.faulty_disk",
    "tiktoken",
    "torch._dynamo",
    "typer.rich_utils",
)
"""What commands import only when they need it; `torch._dynamo` alone takes a second, in every training."""
LARGE_PAGES = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""The server's memory in pages of 2 MB: a fork copies the table of its pages, in 4 ms instead of 15."""


@dataclass(frozen=True)
class Done:
    """How a command line ended."""

    code: int
    """The exit code; -N where signal N ended it."""
    out: bytes
    """Standard output; on a terminal, standard error as well."""
    err: bytes
    hung: bool
    """Whether it was killed because it took too long."""
    orphans: bool
    """Whether it left processes behind."""
    seconds: float
    """Of processor time."""

    @property
    def text(self) -> str:
        return (self.out + self.err).decode("utf-8", "surrogateescape")


class ForkServer:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        usual = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment = os.environ | usual | LARGE_PAGES
        command = [sys.executable, "-P", "-m", "tests.cli.fork_server", str(theirs.fileno())]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        self.socket = ours

    def close(self) -> None:
        self.socket.close()
        self.process.wait()

    def run(
        self,
        arguments: Iterable[str],
        cwd: Path,
        *,
        terminal: bool = False,
        stdin: bytes | None = b"",
        closed: Iterable[str] = (),
        stdout: int | None = None,
        environment: Mapping[str, str] = {},
        seconds: float = SECONDS,
        until: bytes = b"",
        then: int = 0,
        delay: float = 0.0,
        leave: bool = False,
        **child: Any,
    ) -> Done:
        """Runs `pellucid ARGUMENTS` in a folder.

        It gets the signal `then` once its output contains `until`, or after a `delay` in seconds. With
        `leave`, the reader leaves after the first line, as `head -1` does. What is in `child` is for
        `_prepare`.
        """
        reading, given, kept = _streams(terminal, stdin)
        if stdout is not None:
            given[1] = stdout
        pid = self._start(
            given,
            arguments,
            cwd,
            environment=dict(environment),
            closed=list(closed),
            terminal=terminal,
            seconds=seconds,
            child=child,
        )
        for handle in {*given} - {stdout}:
            os.close(handle)
        if delay:
            time.sleep(delay)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, then)
            then = 0
        try:
            return self._follow(pid, reading, seconds, until, then, leave)
        finally:
            for handle in {*reading, *kept}:
                with contextlib.suppress(OSError):
                    os.close(handle)

    def open_terminal(
        self, arguments: Iterable[str], cwd: Path, environment: Mapping[str, str]
    ) -> tuple[int, int]:
        """Runs `pellucid ARGUMENTS` at a terminal that shows what is typed; returns the process, and the end
        at which a person sits. `wait` is called once it has ended, before anything else runs."""
        [here], given, _ = _streams(True, None, echo=True)
        more: dict[str, Any] = {"closed": [], "terminal": True, "seconds": SECONDS, "child": {}}
        pid = self._start(given, arguments, cwd, environment=dict(environment), **more)
        for handle in given:
            os.close(handle)
        return pid, here

    def wait(self) -> int:
        """Returns the exit code of the command at the terminal."""
        return os.waitstatus_to_exitcode(json.loads(self.socket.recv(256))["status"])

    def _start(self, streams: list[int], arguments: Iterable[str], cwd: Path, **request: Any) -> int:
        """Returns the process of a new command line, which has the streams as 0, 1 and 2."""
        request["arguments"] = [argument.encode("utf-8", "surrogateescape").hex() for argument in arguments]
        request["cwd"] = os.fsencode(cwd).hex()
        socket.send_fds(self.socket, [json.dumps(request).encode()], streams)
        return int(self.socket.recv(64))

    def _follow(
        self, pid: int, reading: list[int], seconds: float, until: bytes, then: int, leave: bool
    ) -> Done:
        out: dict[int, bytes] = dict.fromkeys(reading, b"")
        deadline, open_ones, status, hung = time.monotonic() + 2 * seconds, set(reading), None, False
        while status is None or open_ones:
            wait = 0 if status is not None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(
                [*open_ones, *([self.socket] if status is None else [])], [], [], wait
            )
            if not ready:
                if status is not None:  # its own processes may hold its streams; nothing more comes
                    break
                hung = True
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + 10
            for handle in ready:
                if handle is self.socket:
                    status = json.loads(self.socket.recv(256))
                    continue
                try:
                    data = os.read(handle, 1 << 16)
                except OSError as error:  # how a terminal tells that nobody writes any more
                    if error.errno != errno.EIO:
                        raise
                    data = b""
                out[handle] += data
                if not data or (leave and b"\n" in out[handle]):
                    open_ones.discard(handle)
                    if leave:
                        os.close(handle)
                if then and until in out[handle]:
                    os.kill(pid, then)
                    then = 0
        orphans = _end_group(pid)
        code = os.waitstatus_to_exitcode(status["status"])
        hung = hung or code == -signal.SIGXCPU
        texts = [out[handle] for handle in reading]
        return Done(code, texts[0], b"".join(texts[1:]), hung, orphans, status["seconds"])


def _streams(
    terminal: bool, stdin: bytes | None, echo: bool = False
) -> tuple[list[int], list[int], list[int]]:
    """Returns the ends to read from, those for the child's 0, 1 and 2, and what else is to be closed."""
    if terminal:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        settings = termios.tcgetattr(slave)
        settings[3] &= ~(0 if echo else termios.ECHO)
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        if stdin is not None:
            os.write(master, stdin + b"\x04" * 4)  # the end: once to send the line, then to end the file
        return [master], [slave, os.dup(slave), os.dup(slave)], []
    out, err, into = os.pipe(), os.pipe(), os.pipe()
    if stdin:
        os.write(into[1], stdin)  # as much as a pipe holds
    if stdin is not None:
        os.close(into[1])
    return [out[0], err[0]], [into[0], out[1], err[1]], [into[1]] if stdin is None else []


def _end_group(pid: int) -> bool:
    """Kills what is left of a child's session; whether there was anything but what is dead already."""
    alive = False
    for _ in range(500):  # helpers end by themselves when their parent has ended, a moment later
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return False
        alive = True
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return alive


@cache
def fork_server() -> ForkServer:
    """Returns the server of this test process; it ends with it."""
    return ForkServer()


# ---- the server process


def _serve(handle: int) -> None:
    for name in LARGE_PAGES:
        del os.environ[name]  # what a command starts has memory as it always has
    _import_everything()
    channel = socket.socket(fileno=handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    while True:
        data, streams, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not data:
            return
        request = json.loads(data)
        for command, prepare in PREPARED.items():
            if request["arguments"][:1] == [command.encode().hex()]:
                prepare()
        pid = os.fork()
        if pid == 0:
            _run(channel, request, streams)
        for stream in streams:
            os.close(stream)
        channel.send(str(pid).encode())
        _, status, usage = os.wait4(pid, 0)
        channel.send(json.dumps({"status": status, "seconds": usage.ru_utime + usage.ru_stime}).encode())


def _import_everything() -> None:
    """Imports what commands import when they run, so that a child need not."""
    import gc
    import importlib
    import pkgutil

    import pellucid.cli.app
    from pellucid.cli import app

    for module in pkgutil.walk_packages(pellucid.__path__, "pellucid."):
        is_library = "-" in module.name  # a compiled decoder, which is not a module of Python
        if is_library or module.name.endswith(("__main__", "lm_eval_model")):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != "triton":  # kernels of a GPU
                raise
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    tree = app.command_tree()
    app.command_tree = lambda *_: tree
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page


@cache
def _import_transformers() -> None:
    """Imports what `verify` asks about a model: three seconds, once and not in every child."""
    import gc

    import transformers.models.llama.modeling_llama  # noqa: F401

    gc.freeze()


@cache
def _measure_peak() -> None:
    """Measures the machine as `train` does where it is busy: a third of a second."""
    from unittest import mock

    from pellucid.training import machine

    with mock.patch.object(machine, "configure_torch"):  # a command's own doing
        machine.measure_peak("cpu")


PREPARED: dict[str, Callable[[], None]] = {"train": _measure_peak, "verify": _import_transformers}
"""What the server does once, before its first such command."""


def _run(channel: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
    """Becomes a fresh process that runs one command line, and ends."""
    code = 70
    try:
        channel.close()
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(bytes.fromhex(request["cwd"]))
        os.environ.update(request["environment"])
        _open_streams(request, streams)
        arguments = [
            bytes.fromhex(argument).decode("utf-8", "surrogateescape") for argument in request["arguments"]
        ]
        sys.argv = ["pellucid", *arguments]
        code = _main(request)
    except SystemExit as done:
        code = int(done.code or 0)
    finally:
        os._exit(code)


def _open_streams(request: dict[str, Any], streams: list[int]) -> None:
    if request["terminal"]:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, (stream, name) in enumerate(zip(streams, STREAMS, strict=True)):
        os.dup2(stream, number)
        os.close(stream)
        if name in request["closed"]:
            os.close(number)
            opened = None
        else:
            opened = open(number, "w" if number else "r", encoding="utf-8", closefd=False, errors="strict")  # noqa: SIM115
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


def _main(request: dict[str, Any]) -> int:
    """Returns the exit code that Python would end with."""
    import resource
    import threading
    import traceback

    from pellucid import cli

    seconds = int(request["seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.ExitStack() as stack:
        instead = _prepare(stack, **request["child"])
        try:
            code = instead() if instead else 0
            if not instead:
                cli.main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else int(done.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
    threading._shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = code or 120  # as Python itself does
    return code


def _prepare(
    stack: contextlib.ExitStack,
    *,
    memory: int = MEMORY,
    file_size: int = 0,
    disk: Any = None,
    first: str = "",
    instead: str = "",
) -> Callable[[], int] | None:
    """Limits and faults of one command line; limits on memory count from what the server has already.

    `first` and `instead` name functions, MODULE:NAME: one that is called before the command, and one that is
    returned to be called instead of it.
    """
    import resource

    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (has + memory, has + memory))
    if file_size:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if first:
        _named(first)()
    call = _named(instead) if instead else None
    if disk:
        from tests.cli.faulty_disk import Disk

        stack.enter_context(Disk(**disk).watched())
    return (lambda: _as_command(call)) if call else None


def _named(place: str) -> Callable[[], None]:
    import importlib

    module, _, name = place.partition(":")
    found: Callable[[], None] = getattr(importlib.import_module(module), name)
    return found


def _as_command(call: Callable[[], None]) -> int:
    """Returns the exit code of a call from Python: what it raises must be an error for people."""
    from pellucid.base.errors import PellucidError

    try:
        call()
    except PellucidError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
