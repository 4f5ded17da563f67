"""A thread for calls that would hold up the event loop: one at a time, and a bounded number that waits.

It is a daemon: a call into a library cannot be interrupted, and the process need not wait for its end.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pellucid.server.http.limits import RequestError

T = TypeVar("T")


class _Call(NamedTuple):
    function: Callable[[], Any]
    result: "asyncio.Future[Any]"


class WorkThread:
    """Runs calls in the order in which they came; the thread starts with the first of them."""

    def __init__(self, name: str, most_calls: int) -> None:
        self.name, self.most_calls = name, most_calls
        self.calls = 0
        """Calls that run or wait, those that were cancelled among them until their turn."""
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Returns what the function returns; raises a RequestError where too many calls wait already."""
        if self._is_closed:
            raise RequestError("the server is ending.", 503, Retry_After="10")
        if self.calls >= self.most_calls:
            raise RequestError(
                f"{self.calls} requests wait for {self.name} already: try again later.", 429, Retry_After="1"
            )
        return await self._submit(function)

    async def close(self, last: Callable[[], None] | None = None, seconds: float = 0.0) -> None:
        """Refuses further calls, and runs a last one, for whose end it waits that long at most."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is None:
            return
        ended = self._submit(last) if last else None
        self._queue.put(None)
        if ended is not None:
            await asyncio.wait([ended], timeout=seconds)

    def _submit(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self.calls += 1
        self._queue.put(_Call(function, result))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(loop,), name=self.name, daemon=True)
            self._thread.start()
        return result

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while call := self._queue.get():
            found, error = None, None
            if not call.result.cancelled():
                try:
                    found = call.function()
                except BaseException as raised:  # a panic of a Rust library is not an Exception
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finish, call.result, found, error)

    def _finish(self, result: "asyncio.Future[Any]", found: Any, error: BaseException | None) -> None:
        self.calls -= 1
        if result.cancelled():
            return
        if error is None:
            result.set_result(found)
        elif isinstance(error, Exception):
            result.set_exception(error)
        else:
            result.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
