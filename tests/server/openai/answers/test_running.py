"""All requests of an answer end with it: when it is complete, when one fails, and when the client leaves."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from pellucid.generation.answers.lines import GenerateRequest
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import ClientDisconnected
from pellucid.server.openai.answers.running import RunningAnswer
from tests.server.scripted_engine import Script, ScriptedEngine, ScriptedRequest, say

ENDLESS = Script(say("a", "b", finish="")[:1], end=None)


def ask(*prompts: int) -> list[GenerateRequest]:
    return [GenerateRequest((prompt,), {}) for prompt in prompts]


async def stay() -> Any:
    await asyncio.Event().wait()


def make_leaver(seconds: float = 0.0) -> Any:
    async def leave() -> Any:
        await asyncio.sleep(seconds)
        return {"type": "http.disconnect"}

    return leave


async def read_all(answer: RunningAnswer) -> list[tuple[int, str]]:
    found = []
    while pieces := await answer.read():
        found += [(place, piece.text) for place, some in pieces for piece in some]
    return found


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_pieces_of_every_request_come_in_order(count: int) -> None:
    engine = ScriptedEngine(lambda request: Script(say(*map(str, range(request.prompt[0] + 2)))))

    async def run() -> None:
        async with RunningAnswer(engine, ask(*range(count)), stay) as answer:
            found = await read_all(answer)
            assert await answer.read() == []
        for place in range(count):
            assert [text for at, text in found if at == place] == [str(i) for i in range(place + 2)]
        assert answer.completion_tokens == len(found) and answer.prompt_tokens == count
        assert all(request.end is not None and request.is_cancelled.is_set() for request in engine.running)

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("count", [1, 3])
def test_all_are_cancelled_when_the_client_leaves(count: int) -> None:
    engine = ScriptedEngine(lambda request: ENDLESS)

    async def run() -> None:
        async with RunningAnswer(engine, ask(*range(count)), make_leaver(0.01)) as answer:
            with pytest.raises(ClientDisconnected):
                await read_all(answer)
            assert all(request.is_cancelled.is_set() for request in engine.running)
            raise ClientDisconnected

    with pytest.raises(ClientDisconnected):
        asyncio.run(asyncio.wait_for(run(), 10))


def test_all_are_cancelled_when_one_fails() -> None:
    failing = Script(say("a", finish=""), error=RequestError("the engine failed.", 503))
    engine = ScriptedEngine(lambda request: failing if request.prompt == (1,) else ENDLESS)

    async def run() -> None:
        async with RunningAnswer(engine, ask(0, 1, 2), stay) as answer:
            await read_all(answer)

    with pytest.raises(RequestError):
        asyncio.run(asyncio.wait_for(run(), 10))
    assert len(engine.running) == 3 and all(request.is_cancelled.is_set() for request in engine.running)


def test_where_one_is_refused_those_before_it_are_cancelled() -> None:
    class Full(ScriptedEngine):
        def generate(self, request: GenerateRequest) -> ScriptedRequest:
            if request.prompt == (2,):
                raise RequestError("the queue is full.", 429)
            return super().generate(request)

    engine = Full(lambda request: ENDLESS)

    async def run() -> None:
        async with RunningAnswer(engine, ask(0, 1, 2), stay):
            raise AssertionError

    with pytest.raises(RequestError):
        asyncio.run(asyncio.wait_for(run(), 10))
    assert len(engine.running) == 2 and all(request.is_cancelled.is_set() for request in engine.running)


def test_no_task_is_left() -> None:
    engine = ScriptedEngine(lambda request: ENDLESS)

    async def run() -> None:
        async with RunningAnswer(engine, ask(0, 1, 2), stay) as answer:
            await answer.read()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize("count", [1, 3])
def test_an_answer_is_gone_when_it_is_over(count: int) -> None:
    """Nothing that it refers to refers back, which only the garbage collector would find, much later."""
    engine = ScriptedEngine(lambda request: Script(say("a", "b")))

    async def run() -> "weakref.ref[RunningAnswer]":
        answer = RunningAnswer(engine, ask(*range(count)), stay)
        async with answer:
            await read_all(answer)
        await asyncio.sleep(0)
        return weakref.ref(answer)

    gc.disable()
    try:
        assert asyncio.run(run())() is None
    finally:
        gc.enable()
