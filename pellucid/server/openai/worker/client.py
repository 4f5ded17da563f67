"""The parent's side of the engine's process: it sends requests, and hands what comes back to their readers.

Where the process ends, or says nothing for `HANG_SECONDS`, every request in flight fails at once and the
process is started again. Where it ends twice within an hour it is given up: `run_until_given_up` says why,
and the server ends, so that whatever manages it can act.
"""

import asyncio
import itertools
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any, Literal

from pellucid.base.errors import PellucidError, ResourceError, quote
from pellucid.base.formatting import pluralize
from pellucid.base.worker import RestartLimit, make_environment
from pellucid.generation.answers.lines import (
    End,
    EngineOptions,
    EngineReady,
    GenerateRequest,
    Piece,
    ScoredToken,
    StepLine,
    parse_step,
)
from pellucid.server.async_worker import AsyncWorker
from pellucid.server.http.app import make_ending_error
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.metrics import EngineLoad

EngineState = Literal["loading", "ready", "unhealthy"]

logger = logging.getLogger(__name__)

MODULE = "pellucid.server.openai.worker.process"
SPINNING = {"GOMP_SPINCOUNT": "6000"}
"""Threads that wait for each other spin some microseconds and then sleep, unless the user's environment says
otherwise (`SPIN_NAMES`). By default they spin for milliseconds, also where HTTP and clients need the core, so
that half of the tokens are written; threads that never spin cost a third where nothing else runs."""
SPIN_NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
HANG_SECONDS = 30.0
"""A process that writes no line for so long is ended; it writes one every second."""
WATCHES = 10
"""How often in that time the silence is looked at."""
MOST_LINE = 2**28
"""Bytes of one step: the scores of the longest prompt are tens of megabytes."""
MOST_UNSENT = 2**26
"""Bytes of requests that the process has not taken yet; more are refused."""
MOST_RESTARTS = 1
"""Within an hour."""


class EngineRequest:
    """A request in the engine: the pieces that came and were not read yet, and one reader at most."""

    def __init__(self, client: "EngineClient", id: int) -> None:
        self.id = id
        self.prompt: tuple[ScoredToken, ...] = ()
        """The scored tokens of the prompt, before the first piece where they were asked for."""
        self.end: End | None = None
        """Its end, when all pieces were read."""
        self._client = client
        self._pieces: list[Piece] = []
        self._last: End | None = None
        self._failure: RequestError | None = None
        self._is_cancelled = False
        self._reader: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Returns whether nothing more will come."""
        return self._last is not None or self._failure is not None or self._is_cancelled

    async def read(self) -> list[Piece]:
        """Returns the pieces that came since the last call, and waits where there are none; [] at the end.

        It raises a RequestError where the request cannot be run, or the engine failed.
        """
        if not self._pieces and not self.is_over:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        pieces, self._pieces = self._pieces, []
        if self._failure is not None and not pieces:
            raise self._failure
        self.end = self._last
        return pieces

    def cancel(self) -> None:
        """Ends it, at any time; whatever it holds in the engine is free at once, and where `read` waits, it
        returns []."""
        if not self.is_over:
            self._is_cancelled = True
            self._pieces = []
            self._client.send_cancel(self.id)
            self._wake()

    def add(self, piece: Piece) -> None:
        """Takes a piece for the reader, which runs when all of a step's lines are taken."""
        if not self._is_cancelled:
            self._pieces.append(piece)
            self._wake()

    def finish(self, end: End) -> None:
        """Takes the end."""
        if end.error is None:
            self._last = end
            self._wake()
        else:
            self.fail(RequestError(end.error, 500 if end.is_fault else 400))

    def fail(self, error: RequestError) -> None:
        """Ends the request with an error, which its reader gets after the pieces that came before it."""
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class EngineClient:
    """The engine in a process of its own.

    `ready` has its sizes when the model is loaded, and `load` says how full it was at its last step.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        module: str = MODULE,
        hang_seconds: float = HANG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.ready: EngineReady | None = None
        self.load = EngineLoad()
        self._module, self._hang_seconds = module, hang_seconds
        self._restarts = RestartLimit(MOST_RESTARTS, clock)
        self.state: EngineState = "loading"
        self.requests: dict[int, EngineRequest] = {}
        self._ids = itertools.count(1)
        self._worker: AsyncWorker | None = None
        self._running: asyncio.Task[None] | None = None
        self._has_line = False

    @property
    def pid(self) -> int | None:
        """The process id; None where it does not run."""
        return None if self._worker is None else self._worker.pid

    @property
    def in_flight(self) -> int:
        """Requests in the engine, those that wait for a slot included."""
        return len(self.requests)

    # ---- requests

    def generate(self, request: GenerateRequest) -> EngineRequest:
        """Sends a prompt to the engine. It raises a RequestError where the queue is full (429), or where the
        engine does not run (503), both with Retry-After."""
        return self._send("generate", request=request._asdict())

    async def embed(self, prompt: tuple[int, ...]) -> list[float]:
        """Returns the mean of the final hidden states of a prompt, normalized to length 1."""
        running = self._send("embed", prompt=prompt)
        try:
            await running.read()
        finally:
            running.cancel()
        assert running.end is not None and running.end.embedding is not None
        return running.end.embedding

    def send_cancel(self, id: int) -> None:
        """Asks the process to end a request; it is in flight until the process says that it ended."""
        if id in self.requests:
            self._write({"id": id, "do": "cancel"})

    def _send(self, do: str, **what: Any) -> EngineRequest:
        self._check_room()
        id = next(self._ids)
        self._write({"id": id, "do": do, **what})
        running = self.requests[id] = EngineRequest(self, id)
        return running

    def _check_room(self) -> None:
        """Raises where the engine cannot take another request."""
        if self.state == "loading":
            raise RequestError("the model is loading: try again in a few seconds.", 503, Retry_After="5")
        if self.state == "unhealthy":
            raise RequestError("the engine failed, and the server ends.", 503, Retry_After="60")
        most = self.load.most_requests
        assert self._worker is not None
        if len(self.requests) >= most or self._worker.unsent_bytes > MOST_UNSENT:
            message = (
                f"the queue is full: at most {pluralize(most, 'prompt')} may run or wait. Try again later."
            )
            raise RequestError(message, 429, Retry_After="1")

    def _write(self, table: dict[str, Any]) -> None:
        if self._worker is not None:
            self._worker.send(json.dumps(table, allow_nan=False, separators=(",", ":")).encode() + b"\n")

    # ---- the process

    async def start(self) -> EngineReady:
        """Starts the process and returns when the model is loaded; raises the error that loading raised."""
        try:
            worker = await self._open()
        except BaseException:
            self.state = "unhealthy"
            raise
        self._running = asyncio.create_task(self._run(worker))
        assert self.ready is not None
        return self.ready

    async def run_until_given_up(self) -> None:
        """Waits while the process runs or is started again; raises when it is given up."""
        assert self._running is not None
        await asyncio.shield(self._running)

    async def close(self) -> None:
        """Ends the process, and every request in flight; a call of `start` that waits is the caller's."""
        self.fail_all(make_ending_error)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self.state = "unhealthy"

    def fail_all(self, make_error: Callable[[], RequestError]) -> None:
        """Ends every request in flight with an error of its own."""
        failed, self.requests = self.requests, {}
        for id, running in failed.items():
            self._write({"id": id, "do": "cancel"})
            running.fail(make_error())

    async def _open(self) -> AsyncWorker:
        """Returns a process that has loaded the model."""
        options = json.dumps(self.options._asdict())
        spinning = {} if any(name in os.environ for name in SPIN_NAMES) else SPINNING
        try:
            worker = await AsyncWorker.start(
                self._module, options, environment=make_environment(spinning), most_line=MOST_LINE
            )
            self.ready = EngineReady(**await worker.read_ready())
        except EOFError:
            end = await worker.end()
            raise ResourceError(
                f"the engine's process ended with {end} while the model was loading."
            ) from None
        except OSError as error:
            raise ResourceError(f"the engine's process cannot be started: {quote(error)}.") from None
        slots = self.ready.slots
        self.load = self.load._replace(slots=slots, most_requests=slots + self.options.queue)
        self._worker, self.state = worker, "ready"
        return worker

    async def _run(self, worker: AsyncWorker) -> None:
        """Reads what the process writes; where it ends, another one is started, until it is given up."""
        try:
            while True:
                end = await self._read(worker)
                if not self._restarts.allow():
                    raise ResourceError(
                        f"the engine's process ended with {end}, the second time within an hour, and is not "
                        "started again: the server ends."
                    )
                logger.error("the engine is started again")
                self.load = self.load._replace(restarts=self.load.restarts + 1)
                worker = await self._open()
        except PellucidError as error:
            self.state = "unhealthy"
            logger.error("%s", error)
            raise

    async def _read(self, worker: AsyncWorker) -> str:
        """Takes the lines of a process until it ends, and every request in flight with it; returns what
        ended it."""
        watch = asyncio.create_task(self._watch(worker))
        try:
            while line := await worker.read_line():
                self._has_line = True
                self.take(step := parse_step(line))
                if step.prompts:
                    await asyncio.sleep(0)  # of the many lines of a long prompt, one at a time
        except Exception as error:  # nothing that follows such a line can be trusted
            logger.error("a line of the engine's process cannot be read: %s", type(error).__name__)
        finally:
            watch.cancel()
            self._worker, self.state = None, "loading"
            self.fail_all(make_failure)
            self.load = self.load._replace(slots_used=0, queue=0)
            end = await worker.end()
        logger.error("the engine's process ended with %s, and the requests in it failed", end)
        return end

    def take(self, step: StepLine) -> None:
        """Hands what a step brought to the requests; readers are woken once, however much it is."""
        requests = self.requests
        for id, tokens in step.prompts:
            if id in requests:
                requests[id].prompt += tokens
        for piece in step.pieces:
            if (running := requests.get(piece.request)) is not None:
                running.add(piece)
        for end in step.ends:
            if (running := requests.pop(end.request, None)) is not None:
                running.finish(end)
        self.load = self.load._replace(slots_used=step.slots, queue=step.queue)

    async def _watch(self, worker: AsyncWorker) -> None:
        """Ends a process that is silent for too long. It counts looks, not seconds: after this process itself
        was stopped for a while, the lines that came meanwhile are read first."""
        silent = 0
        while silent < WATCHES:
            self._has_line = False
            await asyncio.sleep(self._hang_seconds / WATCHES)
            silent = 0 if self._has_line else silent + 1
        worker.kill()


def make_failure() -> RequestError:
    """Returns the error of a request that was in the engine when it failed."""
    return RequestError("the engine failed, and this answer with it: try again.", 503, Retry_After="5")
