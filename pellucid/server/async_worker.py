"""A worker whose lines an event loop reads and writes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pellucid.base.worker import PIPES, make_command, name_end, read_ready

CLOSE_SECONDS = 2.0
"""How long a process may take to end by itself."""


class AsyncWorker:
    """A process that runs a module of this package; the first line that it writes is read by `read_ready`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def start(
        cls, module: str, *arguments: str, environment: Mapping[str, str], most_line: int
    ) -> "AsyncWorker":
        command = make_command(("-m", module, *arguments))
        return cls(await asyncio.create_subprocess_exec(*command, limit=most_line, env=environment, **PIPES))

    @property
    def pid(self) -> int | None:
        """The process id; None where it has ended."""
        return self._process.pid if self._process.returncode is None else None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were sent and that the process has not taken yet."""
        return self._stdin.transport.get_write_buffer_size()

    def send(self, line: bytes) -> None:
        """Sends a line; what the pipe does not take stays in memory, and the event loop never waits."""
        if not self._stdin.is_closing():
            self._stdin.write(line)

    async def read_ready(self, seconds: float | None = None) -> Any:
        """Returns what the process is ready with; raises the error with which it failed, EOFError where it
        ended, and TimeoutError. It has ended where anything is raised."""
        try:
            async with asyncio.timeout(seconds):
                line = await self.read_line()
            if not line:
                raise EOFError
            return read_ready(line)
        except BaseException as error:
            if not isinstance(error, EOFError):
                self.kill()  # what it loads is not waited for
            await self.end()
            raise

    async def read_line(self) -> bytes:
        """Returns the next line; b"" where the process has ended, be it in the middle of one. A line longer
        than the process may write ends it: nothing that follows can be trusted."""
        try:
            line = await self._stdout.readline()
        except ValueError:
            self.kill()
            return b""
        return line if line.endswith(b"\n") else b""

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> str:
        """Ends the process, which has some seconds to do so by itself, and returns what ended it."""
        self._stdin.close()
        waiting = asyncio.create_task(self._process.wait())
        await asyncio.wait([waiting], timeout=CLOSE_SECONDS)
        self.kill()
        return name_end(await waiting)
