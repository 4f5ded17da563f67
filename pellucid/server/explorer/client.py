"""The parent's side of the explorer's process: `status, body = await worker.ask("next", {"count": 4})`.

The body is JSON as the process wrote it, and is passed on without being read. Where the process ends, every
question that waits gets an error at once, and the next question starts it again; its traces are lost.
"""

import asyncio
import itertools
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pellucid.base.errors import PellucidError, ResourceError
from pellucid.base.worker import RestartLimit, make_environment
from pellucid.server.async_worker import AsyncWorker
from pellucid.server.explorer.process import MOST_ANSWER, MOST_WAITING

MODULE = "pellucid.server.explorer.process"
MOST_LINE = 1_000_000
"""Bytes of a question."""
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
        self._worker: AsyncWorker | None = None
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
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The process id; None where it does not run."""
        return None if self._worker is None else self._worker.pid

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
        assert self._worker is not None
        answer = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        seconds = RUN_SECONDS if self.methods.get(question) == "POST" else ANSWER_SECONDS
        try:
            self._worker.send(line)
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            return _error(504, f"the question {question} took longer than {seconds:.0f} s.")
        finally:
            self._waiting.pop(id, None)

    async def close(self) -> None:
        """Ends the process."""
        self._is_closed = True
        if self._worker is not None:
            await self._worker.end()
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
        given = (self._path or "", self._weights or "") if self._path or self._weights else ()
        self._worker = worker = await AsyncWorker.start(
            *(MODULE, self.source, *given), environment=make_environment(THREADS), most_line=MOST_ANSWER + 100
        )
        try:
            self.methods = await worker.read_ready(START_SECONDS)
        except EOFError:
            raise ResourceError(f"the explorer's process ended with {await worker.end()}.") from None
        except TimeoutError:
            raise ResourceError(f"opening took longer than {START_SECONDS:.0f} s.") from None
        self._reader = asyncio.create_task(self._read_answers(worker))

    async def _read_answers(self, worker: AsyncWorker) -> None:
        """Hands each answer to its question until the process ends."""
        while line := await worker.read_line():
            id, status, body = line.split(b" ", 2)
            answer = self._waiting.pop(int(id), None)
            if answer is not None and not answer.done():
                answer.set_result((int(status), body.rstrip()))
        end = await worker.end()
        message = (
            f"the explorer's process ended with {end}, and its runs are lost. The next question restarts it."
        )
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_result(_error(500, message))


def _error(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"message": message}}).encode()
