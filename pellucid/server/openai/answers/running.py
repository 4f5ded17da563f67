"""The requests of one answer in the engine: sent and read together, cancelled where the client leaves."""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from starlette.types import Receive

from pellucid.generation.answers.lines import GenerateRequest, Piece
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import ClientDisconnected, wait_until_disconnected
from pellucid.server.openai.metrics import AnswerMeter, Outcome
from pellucid.server.openai.reading.sampling import name_field
from pellucid.server.openai.worker.client import EngineClient, EngineRequest

PlacedPieces = list[tuple[int, list[Piece]]]
"""New pieces, with the place of the request to which they belong."""


class RunningAnswer:
    """The requests of one answer, between the beginning and the end of a `with` block.

    Whatever ends the block, a client that closes the connection included, ends every one of them.
    """

    def __init__(
        self,
        engine: EngineClient,
        requests: Sequence[GenerateRequest],
        receive: Receive,
        meter: AnswerMeter | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self._engine, self._requests, self._receive, self._meter = engine, requests, receive, meter
        self._sources = sources or {}
        self.running: list[EngineRequest] = []
        self.prompt_tokens = sum(len(request.prompt) for request in requests)
        self.completion_tokens = 0
        """New tokens of all pieces that were read."""
        self._arrived: PlacedPieces = []
        self._has_arrived = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            for request in self._requests:
                self.running.append(self._engine.generate(request))
        except BaseException:
            self._cancel()
            raise
        self._watch = asyncio.create_task(self._watch_client())
        if len(self.running) > 1:
            self._readers = [asyncio.create_task(self._collect(*pair)) for pair in enumerate(self.running)]
            for reader in self._readers:
                reader.add_done_callback(lambda _: self._has_arrived.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watch is not None
        self._cancel()
        outcome = _name_outcome(error)
        if self._meter is not None and outcome is not None:
            self._meter.end(outcome, self.prompt_tokens, self.completion_tokens)
        for task in (self._watch, *self._readers):
            task.cancel()
        await asyncio.gather(self._watch, *self._readers, return_exceptions=True)
        self._watch, self._readers = None, []  # their errors refer to this answer, which would stay for long

    async def read(self) -> PlacedPieces:
        """Returns the pieces that came since the last call, and waits where there are none; [] at the end.

        It raises a RequestError where a request failed, and ClientDisconnected where the client left.
        """
        try:
            if self._readers:
                found = await self._read_several()
            else:
                found = [(0, pieces)] if (pieces := await self.running[0].read()) else []
        except RequestError as error:  # of the engine, which knows settings and not the request's fields
            raise name_field(str(error), self._sources) if error.status == 400 else error from None
        assert self._watch is not None
        if self._watch.done():
            raise ClientDisconnected
        before = self.completion_tokens
        for _, pieces in found:
            for piece in pieces:
                self.completion_tokens += piece.new_tokens
        if before == 0 < self.completion_tokens and self._meter is not None:
            self._meter.mark_first_token()
        return found

    async def _read_several(self) -> PlacedPieces:
        while not self._arrived:
            over = [reader for reader in self._readers if reader.done()]
            for reader in over:
                reader.result()
            if len(over) == len(self._readers):
                break
            self._has_arrived.clear()
            await self._has_arrived.wait()
        found, self._arrived = self._arrived, []
        return found

    async def _collect(self, place: int, running: EngineRequest) -> None:
        while pieces := await running.read():
            self._arrived.append((place, pieces))
            self._has_arrived.set()

    async def _watch_client(self) -> None:
        """Returns when the client has closed the connection; every request is then cancelled."""
        await wait_until_disconnected(self._receive)
        self._cancel()

    def _cancel(self) -> None:
        for running in self.running:
            running.cancel()


def _name_outcome(error: BaseException | None) -> Outcome | None:
    """Returns how an answer ended; None where its request was refused."""
    match error:
        case None:
            return "complete"
        case ClientDisconnected():
            return "cancelled"
        case RequestError() if error.status < 500:
            return None
    return "failed"
