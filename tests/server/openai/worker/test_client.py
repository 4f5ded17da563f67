"""The parent's side of the engine's process, mostly with a stand-in that runs no model."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, ResourceError
from pellucid.generation.answers.lines import (
    End,
    EngineOptions,
    GenerateRequest,
    Piece,
    PromptScores,
    ScoredToken,
    StepLine,
)
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.worker.client import SPIN_NAMES, EngineClient, EngineRequest
from tests.server.served import STAND_IN


@contextlib.asynccontextmanager
async def run_client(model: str = "any", **more: Any) -> AsyncIterator[EngineClient]:
    options = {"slots": 4, "queue": 2} | more
    own = {name: options.pop(name) for name in ("hang_seconds", "clock") if name in options}
    client = EngineClient(EngineOptions(model, **options), module=STAND_IN, **own)
    try:
        yield client
    finally:
        await client.close()


def ask(tokens: int = 5, **sampling: Any) -> GenerateRequest:
    return GenerateRequest((1, 2), {"max_new_tokens": tokens, **sampling})


async def read_text(running: Any) -> str:
    text = ""
    while pieces := await running.read():
        text += "".join(piece.text for piece in pieces)
    return text


def test_pieces_come_in_order_and_the_end_has_the_seed() -> None:
    async def run() -> None:
        async with run_client() as client:
            assert client.state == "loading"
            with pytest.raises(RequestError) as refused:
                client.generate(ask())
            assert refused.value.status == 503 and "Retry-After" in refused.value.headers
            assert (await client.start()).slots == 4
            many = [client.generate(ask(count, seed=count)) for count in (3, 9, 50)]
            texts = await asyncio.gather(*map(read_text, many))
            assert [text.count(" ") for text in texts] == [3, 9, 50]
            assert texts[0] == " 0 1 2" and [running.end.seed for running in many] == [3, 9, 50]
            assert await client.embed((3, 4)) == [3.0, 4.0] and client.in_flight == 0

    asyncio.run(run())


@pytest.mark.parametrize(("model", "kind"), [("fails", FileError), ("ends", ResourceError)])
def test_a_model_that_does_not_load_raises_its_own_error(model: str, kind: type[Exception]) -> None:
    async def run() -> None:
        async with run_client(model) as client:
            with pytest.raises(kind):
                await client.start()
            assert client.state == "unhealthy" and client.pid is None

    asyncio.run(run())


def test_a_process_that_cannot_be_started_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")

    async def run() -> None:
        async with run_client() as client:
            with pytest.raises(ResourceError, match="cannot be started"):
                await client.start()
            assert client.state == "unhealthy"

    asyncio.run(run())


def test_a_killed_process_fails_every_request_and_is_restarted_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with run_client("slow") as client:
            await client.start()
            many = [client.generate(ask(100)) for _ in range(6)]
            await many[0].read()
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            failed = await asyncio.wait_for(
                asyncio.gather(*map(read_text, many), return_exceptions=True), timeout=1
            )
            assert all(isinstance(error, RequestError) and error.status == 503 for error in failed)
            while client.state == "loading":
                await asyncio.sleep(0.01)
            assert await read_text(client.generate(ask(2))) == " 0 1" and client.load.restarts == 1
            os.kill(client.pid, signal.SIGKILL)
            while client.state == "ready":
                await asyncio.sleep(0.01)
            with pytest.raises(ResourceError, match="signal 9"):
                await client.run_until_given_up()
            assert client.state == "unhealthy" and "within an hour" in caplog.text
            with pytest.raises(RequestError) as refused:
                client.generate(ask())
            assert refused.value.status == 503

    asyncio.run(run())


def test_a_death_is_forgotten_after_an_hour() -> None:
    now = 0.0

    async def run() -> None:
        nonlocal now
        async with run_client(clock=lambda: now) as client:
            await client.start()
            for deaths in (1, 2, 3):
                now += 3601
                assert client.pid is not None
                os.kill(client.pid, signal.SIGKILL)
                await wait_for_state(client, "loading")
                await wait_for_state(client, "ready")
                assert client.load.restarts == deaths

    asyncio.run(run())


def test_more_requests_than_slots_and_queue_are_refused() -> None:
    async def run() -> None:
        async with run_client("slow") as client:
            await client.start()
            many = [client.generate(ask(100)) for _ in range(6)]
            with pytest.raises(RequestError) as refused:
                client.generate(ask())
            assert refused.value.status == 429 and refused.value.headers == {"Retry-After": "1"}
            reader = asyncio.create_task(many[0].read())
            await asyncio.sleep(0)
            many[0].cancel()
            assert await reader == [] and many[0].end is None
            while client.in_flight == 6:
                await asyncio.sleep(0.01)
            client.generate(ask())

    asyncio.run(run())


async def wait_for_state(client: EngineClient, *states: str) -> None:
    async with asyncio.timeout(5):
        while client.state not in states:
            await asyncio.sleep(0.01)


def test_a_process_that_hangs_is_ended_and_started_again() -> None:
    async def run() -> None:
        async with run_client("slow", hang_seconds=0.5) as client:
            await client.start()
            running = client.generate(ask(100))
            await running.read()
            stopped = client.pid
            assert stopped is not None
            os.kill(stopped, signal.SIGSTOP)
            with pytest.raises(RequestError):
                async with asyncio.timeout(3):
                    await read_text(running)
            await wait_for_state(client, "ready")
            assert client.pid != stopped and await read_text(client.generate(ask(2))) == " 0 1"

    asyncio.run(run())


def test_a_line_that_is_not_the_engine_s_ends_the_process() -> None:
    async def run() -> None:
        async with run_client("garbles") as client:
            await client.start()
            await wait_for_state(client, "unhealthy")
            assert client.load.restarts == 1 and client.pid is None

    asyncio.run(run())


def send_many(client: EngineClient, count: int) -> None:
    for _ in range(count):
        client.generate(GenerateRequest(tuple(range(10_000)), {}))


def test_a_full_pipe_never_holds_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reads nothing: requests wait in memory up to a limit, and then they are refused."""
    monkeypatch.setattr("pellucid.server.openai.worker.client.MOST_UNSENT", 2**20)

    async def run() -> None:
        async with run_client(queue=1000) as client:
            await client.start()
            assert client.pid is not None
            os.kill(client.pid, signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(RequestError) as refused:
                send_many(client, 1000)
            assert refused.value.status == 429 and time.monotonic() - began < 2
            os.kill(client.pid, signal.SIGKILL)
            await wait_for_state(client, "loading")
            assert client.in_flight == 0

    asyncio.run(run())


def test_a_request_that_the_engine_refuses_is_the_client_s_error() -> None:
    async def run() -> None:
        client = EngineClient(EngineOptions("any"))
        for is_fault, status in ((False, 400), (True, 500)):
            running = client.requests[7] = EngineRequest(client, 7)
            step = StepLine([Piece(7, 0, "a", 1)], [], [End(7, error="no", is_fault=is_fault)], 0, 0)
            client.take(step)
            assert [piece.text for piece in await running.read()] == ["a"]  # what came before it
            with pytest.raises(RequestError, match="no") as refused:
                await running.read()
            assert refused.value.status == status

    asyncio.run(run())


def test_the_end_is_known_with_the_last_pieces_and_scores_before_the_first() -> None:
    async def run() -> None:
        client = EngineClient(EngineOptions("any"))
        running = client.requests[7] = EngineRequest(client, 7)
        reader = asyncio.create_task(running.read())
        await asyncio.sleep(0)
        first, token = ScoredToken(2, 0), ScoredToken(3, 0, -0.5)
        client.take(
            StepLine([], [PromptScores(7, (first,))], [], 0, 0)
        )  # a long prompt comes in several lines
        client.take(StepLine([Piece(7, 0, "a", 1)], [PromptScores(7, (token,))], [End(7, 5)], 0, 0))
        assert len(await reader) == 1 and running.prompt == (first, token)
        assert running.end == End(7, 5) and await running.read() == []

    asyncio.run(run())


def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def run() -> None:
        client = EngineClient(EngineOptions("any"))
        running = client.requests[7] = EngineRequest(client, 7)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running.read(), 0.01)
        client.take(StepLine([Piece(7, 0, "a", 1)], [], [], 1, 0))
        assert [piece.text for piece in await running.read()] == ["a"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "spins"), [(None, b"6000"), ("OMP_WAIT_POLICY", None), ("GOMP_SPINCOUNT", b"PASSIVE")]
)
def test_threads_that_wait_leave_the_core_soon_unless_the_user_wants_it_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str | None, spins: bytes | None
) -> None:
    for name in SPIN_NAMES:
        monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv(given, "PASSIVE")

    async def run() -> None:
        async with run_client() as client:
            await client.start()
            lines = Path(f"/proc/{client.pid}/environ").read_bytes().split(b"\0")
            variables = dict(line.split(b"=", 1) for line in lines if line)
            assert variables.get(b"GOMP_SPINCOUNT") == spins

    asyncio.run(run())
