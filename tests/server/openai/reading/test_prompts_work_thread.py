"""A thread runs calls in their order, a bounded number of them, and the loop goes on meanwhile."""

import asyncio
import threading

import pytest

from pellucid.server.http.limits import RequestError
from pellucid.server.openai.reading.prompts import WorkThread


class Panic(BaseException):
    """What a Rust library raises."""


def fail(error: BaseException) -> None:
    raise error


def test_calls_run_one_after_the_other_in_one_thread() -> None:
    async def run() -> None:
        thread, order = WorkThread("work", 8), list[tuple[int, str]]()

        def work(i: int) -> int:
            order.append((i, threading.current_thread().name))
            return i

        assert await asyncio.gather(*(thread.run(lambda i=i: work(i)) for i in range(5))) == [0, 1, 2, 3, 4]
        assert order == [(i, "work") for i in range(5)] and thread.calls == 0

    asyncio.run(run())


def test_too_many_calls_are_refused_and_a_cancelled_one_does_not_run() -> None:
    async def run() -> None:
        thread, go, ran = WorkThread("work", 2), threading.Event(), list[int]()
        first = asyncio.create_task(thread.run(go.wait))
        second = asyncio.create_task(thread.run(lambda: ran.append(1)))
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused:
            await thread.run(lambda: ran.append(2))
        assert refused.value.status == 429 and refused.value.headers["Retry-After"]
        second.cancel()
        go.set()
        assert await first
        await thread.run(lambda: ran.append(3))
        assert ran == [3] and thread.calls == 0

    asyncio.run(run())


@pytest.mark.parametrize(("error", "kind"), [(KeyError("a"), KeyError), (Panic("a"), RuntimeError)])
def test_an_error_of_a_call_is_raised_where_it_is_awaited(
    error: BaseException, kind: type[Exception]
) -> None:
    async def run() -> None:
        thread = WorkThread("work", 2)
        with pytest.raises(kind):
            await thread.run(lambda: fail(error))
        assert await thread.run(lambda: 5) == 5

    asyncio.run(run())


def test_a_closed_thread_runs_its_last_call_and_no_more() -> None:
    async def run() -> None:
        thread, ran = WorkThread("work", 2), list[int]()
        await thread.run(lambda: ran.append(1))
        await thread.close(lambda: ran.append(2), 5)
        await thread.close(lambda: ran.append(3), 5)
        assert ran == [1, 2]
        with pytest.raises(RequestError) as refused:
            await thread.run(lambda: ran.append(4))
        assert refused.value.status == 503

    asyncio.run(run())


def test_the_end_does_not_wait_for_a_call_that_does_not_end() -> None:
    async def run() -> None:
        thread, go = WorkThread("work", 2), threading.Event()
        waiting = asyncio.create_task(thread.run(go.wait))
        await asyncio.sleep(0)
        await thread.close(lambda: None, 0.01)
        assert not waiting.done()
        go.set()
        assert await waiting

    asyncio.run(run())
