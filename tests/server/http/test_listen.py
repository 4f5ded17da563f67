"""A signal ends a server, and the server says which one it was; one that drains answers before it ends."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.address import bind, get_port
from pellucid.server.http.app import Shell, ShellRoute
from pellucid.server.http.limits import Access, RequestError
from pellucid.server.http.listen import SIGNALS, DrainingServer, LimitedProtocol


def serve_until(*numbers: int) -> DrainingServer:
    """Returns a server that ran until it got these signals."""

    async def serve() -> DrainingServer:
        with bind(0) as listening:
            server = DrainingServer(Shell([], Access(get_port(listening), "k")), drain_seconds=1)
            loop = asyncio.get_running_loop()
            for number in numbers:
                loop.call_later(0.05, os.kill, os.getpid(), number)
            await server.serve([listening])
            return server

    return asyncio.run(serve())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_server_and_is_restored(number: int) -> None:
    before = signal.signal(number, handler := lambda *_: None)
    try:
        assert serve_until(number).ended_by == number
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_an_ignored_signal_stays_ignored() -> None:
    """As after `nohup`, or in the background of a script."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server = serve_until(signal.SIGHUP, signal.SIGTERM)
        assert server.ended_by == signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_other_parser_is_taken_where_it_is_installed() -> None:
    with bind(0) as listening:
        config = DrainingServer(Shell([], Access(get_port(listening), "k")), drain_seconds=1).config
    assert config.http is LimitedProtocol
    assert (config.ws, config.loop, config.access_log, config.server_header) == (
        "none",
        "asyncio",
        False,
        False,
    )


class Draining:
    """A draining server with a route that answers when it may, and connections to it."""

    def __init__(self, port: int, drain_seconds: int) -> None:
        self.port, self.may_answer, self.began = port, asyncio.Event(), asyncio.Event()
        self.gave_up, self.said = 0, list[str]()
        routes = [
            ShellRoute("/slow", self.answer),
            ShellRoute("/health", self.answer_at_once, is_public=True),
        ]
        self.app = Shell(routes, Access(port, None))
        self.server = DrainingServer(self.app, drain_seconds, self.give_up, self.said.append)

    async def answer(self, request: Request) -> Response:
        self.began.set()
        await self.may_answer.wait()
        if self.gave_up:
            raise RequestError("it was given up.", 503)
        return Response(b"answered")

    async def answer_at_once(self, request: Request) -> Response:
        return Response(b"ending" if request.app.is_ending else b"ready")

    def give_up(self) -> None:
        self.gave_up += 1
        self.may_answer.set()

    async def ask(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n\r\n".encode()
        )
        with contextlib.closing(writer):
            return await reader.read()


def drain(test: Callable[[Draining], Awaitable[None]], drain_seconds: int = 30) -> Draining:
    """Runs a test beside a server until the server ends, and returns the server's side."""

    async def run() -> Draining:
        with bind(0) as listening:
            draining = Draining(get_port(listening), drain_seconds)
            serving = asyncio.create_task(draining.server.serve([listening]))
            while not draining.server.started:
                await asyncio.sleep(0.01)
            await test(draining)
            await asyncio.wait_for(serving, 5)
            return draining

    return asyncio.run(run())


def send_signal(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_answer_is_given_while_new_requests_are_refused(number: int) -> None:
    async def test(draining: Draining) -> None:
        answer = asyncio.create_task(draining.ask("/slow"))
        await draining.began.wait()
        idle = await asyncio.open_connection("127.0.0.1", draining.port)
        send_signal(number)
        refused = await draining.ask("/slow")
        assert refused.startswith(b"HTTP/1.1 503") and b"retry-after: 10" in refused.lower()
        assert (await draining.ask("/health")).endswith(b"ending")
        await asyncio.sleep(0.3)
        assert not answer.done() and not draining.server.should_exit
        draining.may_answer.set()
        assert (await answer).endswith(b"answered")
        assert await idle[0].read() == b""  # a connection that asks for nothing holds nothing up
        idle[1].close()

    draining = drain(test)
    assert draining.server.ended_by == number and not draining.gave_up
    assert len(draining.said) == 1 and draining.said[0].startswith("1 request")


def test_answers_that_take_too_long_are_given_up() -> None:
    async def test(draining: Draining) -> None:
        answer = asyncio.create_task(draining.ask("/slow"))
        await draining.began.wait()
        send_signal()
        assert (await answer).startswith(b"HTTP/1.1 503")

    assert drain(test, drain_seconds=1).gave_up == 1


def test_the_second_signal_waits_for_nothing() -> None:
    async def test(draining: Draining) -> None:
        answer = asyncio.create_task(draining.ask("/slow"))
        await draining.began.wait()
        send_signal()
        await asyncio.sleep(0.15)
        began = time.monotonic()
        send_signal()
        while draining.server.servers[0].is_serving():
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 1
        answer.cancel()

    assert drain(test).server.force_exit
