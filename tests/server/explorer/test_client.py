"""The parent's side: answers pass through unread, a dead process is an error at once and is started again."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pellucid.base.errors import ResourceError
from pellucid.server.explorer import client
from pellucid.server.explorer.client import ExplorerWorker
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.question import get_method
from pellucid.server.explorer.session import Session


def with_worker(
    walk: Callable[[ExplorerWorker], Awaitable[None]], source: str = "abcd", weights: str | None = None
) -> ExplorerWorker:
    """Runs a coroutine with a worker and returns the worker, closed."""

    async def run() -> ExplorerWorker:
        worker = await ExplorerWorker.start(source, weights=weights)
        try:
            await asyncio.wait_for(walk(worker), 60)
        finally:
            await worker.close()
        return worker

    return asyncio.run(run())


def message(answer: tuple[int, bytes]) -> str:
    return str(json.loads(answer[1])["error"]["message"])


def test_answers_are_those_of_a_session_in_this_process() -> None:
    session = Session.open("abcd", weights="int8")
    session.run(RunRequest("A B", "C", backward=True))
    questions = [
        ("names", {}),
        ("next", {"count": "2"}),
        ("value", {"at": "blocks.0.attn.scores[t=0,s=0]"}),
        ("total", {"name": "probs"}),
        ("heads", {}),
        ("tokens", {"text": "A B"}),
    ]

    async def walk(worker: ExplorerWorker) -> None:
        ran = await worker.ask("run", {"prompt": "A B", "target": "C", "backward": True})
        assert ran == (200, b'{"trace":"t1"}')
        found = await asyncio.gather(*(worker.ask(name, given, True) for name, given in questions))
        for (name, given), (status, body) in zip(questions, found, strict=True):
            assert status == 200 and not body.endswith(b"\n")
            typed: Any = {"count": 2} if "count" in given else given
            assert json.loads(body) == session.ask(name, **typed)
        assert worker.methods == {name: get_method(name) for name in worker.methods}
        for count in (object(), float("nan")):
            assert (await worker.ask("next", {"count": count}))[0] == 400
        assert (await worker.ask("tokens", {"text": "x" * client.MOST_LINE}))[0] == 400
        assert (await worker.ask("nxt"))[0] == 404

    worker = with_worker(walk, weights="int8")
    assert not worker.is_alive and worker.pid is None


def test_a_killed_process_is_an_error_at_once_and_starts_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MOST_RESTARTS", 1)

    async def walk(worker: ExplorerWorker) -> None:
        await worker.ask("run", {"prompt": "A B"})
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)  # so that both are under way
        waiting = [asyncio.create_task(worker.ask("run", {"prompt": "A"})) for _ in range(2)]
        await asyncio.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
        for answer in await asyncio.wait_for(asyncio.gather(*waiting), 5):
            assert answer[0] == 500 and "signal 9" in message(answer) and "lost" in message(answer)
        assert "no trace yet" in message(await worker.ask("next"))
        assert await worker.ask("run", {"prompt": "A B"}) == (200, b'{"trace":"t1"}')
        os.kill(worker.pid, signal.SIGKILL)
        await worker.ask("session")
        assert "ended 2 times" in message(await worker.ask("session"))

    worker = with_worker(walk)

    async def ask_after_close() -> tuple[int, bytes]:
        return await worker.ask("session")

    assert asyncio.run(ask_after_close())[0] == 500


def test_a_question_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(client, "MOST_WAITING", 2)

    async def walk(worker: ExplorerWorker) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        answers = await asyncio.gather(*(worker.ask("session") for _ in range(3)))
        assert [status for status, _ in answers] == [504, 504, 503]
        os.kill(worker.pid, signal.SIGCONT)
        monkeypatch.setattr(client, "ANSWER_SECONDS", 10)
        assert (await worker.ask("session"))[0] == 200  # the late answers are dropped

    with_worker(walk)


def test_a_process_that_ends_while_it_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ResourceError, match="exit code 1"):
        asyncio.run(ExplorerWorker.start("abcd"))
