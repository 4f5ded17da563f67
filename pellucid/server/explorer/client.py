"""The parent's side of the explorer's process: `status, body = await worker.ask("next", {"count": 4})`.

The body is JSON as the process wrote it, and is passed on without being read. Where the process ends, every
question that waits gets an error at once, and the next question starts it again; its traces are lost.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pellucid
from pellucid.base import errors
from pellucid.base.errors import PellucidError, ResourceError
from pellucid.base.restarts import RestartLimit
from pellucid.server.explorer.process import MOST_ANSWER, MOST_LINE, MOST_WAITING

THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""One BLAS thread: two of them spin while they wait for each other. NumPy reads this when it is imported."""
START_SECONDS, ANSWER_SECONDS, RUN_SECONDS = 300.0, 60.0, 3600.0
"""Limits of opening a source, of an answer, and of an answer that computes for long."""
MOST_RESTARTS = 3
"""Within an hour."""


class ExplorerWorker:
    """A process that holds a session.

    `path` is where its model is read, if not by the name of the source, and `weights` how its matrices are
    held. `methods` has the HTTP method of each question, and `is_alive` says whether the process runs.
    """

    def __init__(self, source: str, path: str | None = None, weights: str | None = None) -> None:
        self.source, self._path, self._weights = source, path, weights
        self.methods: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._ids = itertools.count(1)
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._restarts = RestartLimit(MOST_RESTARTS)
        self._is_closed = False

    @classmethod
    async def start(
        cls, source: str, path: str | None = None, weights: str | None = None
    ) -> "ExplorerWorker":
        """Returns a worker whose source is open; raises the error that opening it raised."""
        worker = cls(source, path, weights)
        await worker._start()
        return worker

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The process id; None where it does not run."""
        return self._process.pid if self._process is not None and self.is_alive else None

    async def ask(
        self, question: str, parameters: Mapping[str, Any] = MappingProxyType({}), is_text: bool = False
    ) -> tuple[int, bytes]:
        """Returns an HTTP status and the body: the answer, or an error with its message.

        With `is_text` every parameter is a text, as a URL has it.
        """
        if len(self._waiting) >= MOST_WAITING:
            return _error(503, f"{MOST_WAITING} questions are waiting already: try again later.")
        id = next(self._ids)
        asked = {"id": id, "question": question, "parameters": dict(parameters), "is_text": is_text}
        try:
            line = json.dumps(asked, allow_nan=False).encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            return _error(400, f"the parameters of {question} cannot be written as JSON.")
        if len(line) > MOST_LINE:
            return _error(
                400, f"the question {question} has {len(line):,} bytes; {MOST_LINE:,} are the most."
            )
        try:
            await self._restart()
        except PellucidError as error:
            return _error(500, str(error))
        return await self._exchange(id, question, line)

    async def _exchange(self, id: int, question: str, line: bytes) -> tuple[int, bytes]:
        """Sends a line and returns the status and the body of its answer."""
        assert self._process is not None and self._process.stdin is not None
        answer = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        seconds = RUN_SECONDS if self.methods.get(question) == "POST" else ANSWER_SECONDS
        try:
            with contextlib.suppress(ConnectionError):  # the reader sees the end, and says so
                self._process.stdin.write(line)
                await asyncio.wait_for(self._process.stdin.drain(), seconds)
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            return _error(504, f"the question {question} took longer than {seconds:.0f} s.")
        finally:
            self._waiting.pop(id, None)

    async def close(self) -> None:
        """Ends the process."""
        self._is_closed = True
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 2)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def _restart(self) -> None:
        """Starts the process where it has ended."""
        async with self._starting:
            if self.is_alive:
                return
            if self._is_closed:
                raise ResourceError("the explorer is closed.")
            if not self._restarts.allow():
                again = f"`pellucid explore {self.source}` starts it anew."
                times = f"{MOST_RESTARTS + 1} times within an hour"
                raise ResourceError(f"the explorer's process ended {times}. {again}")
            await self._start()

    async def _start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            # -P: no module of the current folder is imported
            *(sys.executable, "-P", "-m", "pellucid.server.explorer.process", self.source),
            *((self._path or "", self._weights or "") if self._path or self._weights else ()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MOST_ANSWER + 100,
            env=make_environment(THREADS),
            start_new_session=True,  # Ctrl-C at a terminal is the parent's
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except BaseException as error:
            process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise ResourceError(f"opening took longer than {START_SECONDS:.0f} s.") from None
            raise
        if not line:
            raise ResourceError(f"the explorer's process ended with {name_end(await process.wait())}.")
        _, status, body = line.split(b" ", 2)
        first = json.loads(body)
        if status != b"200":
            await process.wait()
            kind = getattr(errors, first["error"]["kind"], PellucidError)
            raise kind(first["error"]["message"])
        self.methods = first["ready"]
        self._reader = asyncio.create_task(self._read_answers(process))

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        """Hands each answer to its question until the process ends."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                id, status, body = line.split(b" ", 2)
                answer = self._waiting.pop(int(id), None)
                if answer is not None and not answer.done():
                    answer.set_result((int(status), body.rstrip()))
        except ValueError:  # not a line of this process: nothing that follows can be trusted
            process.kill()
        end = name_end(await process.wait())
        message = (
            f"the explorer's process ended with {end}, and its runs are lost. The next question restarts it."
        )
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_result(_error(500, message))


def make_environment(variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Returns the variables of a process that imports this package, also where it is not installed."""
    found, root = os.environ | variables, Path(pellucid.__file__).parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), found.get("PYTHONPATH"))))
    return found


def _error(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"message": message}}).encode()


def name_end(returncode: int) -> str:
    """Returns what ended a process.

    >>> name_end(-15), name_end(1)
    ('the signal 15', 'the exit code 1')
    """
    if returncode == -signal.SIGKILL:
        return "the signal 9, perhaps for want of memory"
    return f"the signal {-returncode}" if returncode < 0 else f"the exit code {returncode}"
