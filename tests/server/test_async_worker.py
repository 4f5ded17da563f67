"""A process that an event loop waits for: its lines, and its end."""

import asyncio
from pathlib import Path

import pytest

from pellucid.base.worker import make_environment
from pellucid.server.async_worker import AsyncWorker


async def start(folder: Path, program: str, most_line: int = 1000) -> AsyncWorker:
    """Returns a worker that runs a program as a module."""
    (folder / "program.py").write_text(f"import sys, time\nwrite = sys.stdout.write\n{program}")
    environment = make_environment({"PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"})
    return await AsyncWorker.start("program", environment=environment, most_line=most_line)


def test_a_line_that_the_end_cuts_off_is_none(tmp_path: Path) -> None:
    async def run() -> None:
        worker = await start(tmp_path, "write('whole\\nhal')")
        assert [await worker.read_line() for _ in range(2)] == [b"whole\n", b""]
        assert await worker.end() == "the exit code 0" and worker.pid is None

    asyncio.run(run())


def test_a_line_that_is_too_long_ends_the_process(tmp_path: Path) -> None:
    async def run() -> None:
        worker = await start(tmp_path, "write('x' * 5000); time.sleep(60)", most_line=100)
        assert await worker.read_line() == b""
        assert "signal 9" in await worker.end()

    asyncio.run(run())


def test_a_process_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    async def run() -> None:
        worker = await start(tmp_path, "sys.stdin.read()")
        with pytest.raises(TimeoutError):
            await worker.read_ready(0.01)
        assert worker.pid is None

    asyncio.run(run())
