"""A server as a user starts it: a command whose output has its address, in a process of its own."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LOAD_SECONDS = 120.0


@dataclass(frozen=True)
class ServerProcess:
    """A server that runs; the engine of ours is a child of it."""

    port: int
    pid: int

    @property
    def engine_pid(self) -> int:
        found = Path(f"/proc/{self.pid}/task").glob("*/children")
        (child,) = (int(child) for path in found for child in path.read_text().split())
        return child


@contextlib.contextmanager
def run_serve(
    model: str | Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Runs `pellucid serve` on a free port until the block ends."""
    command = [sys.executable, "-m", "pellucid.cli", "serve", str(model), "--port", "0", *options]
    with run_server_command(command, environment) as server:
        yield server


@contextlib.contextmanager
def run_server_command(
    command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Runs a command that prints the address of a server, and returns when that is ready."""
    given = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given)
    try:
        assert process.stdout is not None
        port = next(read_port(line) for line in process.stdout if "http://" in line)
        wait_until_ready(port)
        yield ServerProcess(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.stdout is not None
        process.stdout.close()


def read_port(line: str) -> int:
    """Returns the port of an address.

    >>> read_port("Serving on http://127.0.0.1:8000/v1.")
    8000
    """
    after = line.partition("http://")[2].partition(":")[2]
    return int("".join(char for char in after.partition("/")[0] if char.isdigit()))


def wait_until_ready(port: int) -> None:
    """Returns when `/health` answers with 200."""
    deadline = time.monotonic() + LOAD_SECONDS
    while ask_health(port) != 200:
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not become ready")
        time.sleep(0.05)


def ask_health(port: int) -> int:
    """Returns the status of `/health`; 0 where nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except OSError:
            return 0
