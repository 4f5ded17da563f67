"""The process that serves computes nothing, and imports nothing that does."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from pellucid.base.errors import ResourceError, UsageError
from pellucid.server.explorer.serve import end_by_signal, read_page_files, wait_until_encoded


def test_the_process_that_serves_imports_neither_numpy_nor_torch() -> None:
    script = (
        "import sys, pellucid.cli.explore, pellucid.server.explorer.serve, pellucid.server.explorer.app, "
        "pellucid.server.http.listen\n"
        "sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_files_of_the_page_are_in_the_package() -> None:
    files = read_page_files()
    assert {"index.html", "main.js", "page.css"} <= files.keys()
    assert all(name.endswith((".html", ".js", ".css")) for name in files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_is_still_being_opened(number: int) -> None:
    """What was begun is ended first."""
    ended = []

    async def open_source() -> int | None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return None

    async def serve() -> int | None:
        asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), number)
        return await end_by_signal(open_source())

    assert asyncio.run(serve()) == number and ended


class Busy:
    """A worker that is busy after some questions."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def ask(self, question: str) -> tuple[int, bytes]:
        self.left -= 1
        return 200, json.dumps({"busy": {"what": "forward pass"} if self.left < 0 else None}).encode()


async def wait(worker: Busy, status: int, seconds: float) -> bool:
    """Waits for a run that takes these seconds; returns whether it was still computing then."""

    async def run() -> tuple[int, bytes]:
        await asyncio.sleep(seconds)
        return status, b'{"error": {"message": "no"}}'

    running = asyncio.create_task(run())
    await wait_until_encoded(worker, running)  # type: ignore[arg-type]
    return running.cancel()


def test_a_run_that_computes_is_not_waited_for() -> None:
    assert asyncio.run(wait(Busy(2), 200, 0.5))


@pytest.mark.parametrize(("status", "kind"), [(400, UsageError), (500, ResourceError)])
def test_a_prompt_that_is_refused_ends_the_command(status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="no"):
        asyncio.run(wait(Busy(100), status, 0.01))
