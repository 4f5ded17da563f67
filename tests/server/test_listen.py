"""A signal ends a server, and the server says which one it was."""

import asyncio
import os
import signal

import pytest

from pellucid.server.app import Shell
from pellucid.server.bind import bind, get_port
from pellucid.server.limits import Access
from pellucid.server.listen import SIGNALS, SignalledServer, make_server


def serve_until(*numbers: int) -> SignalledServer:
    """Returns a server that ran until it got these signals."""

    async def serve() -> SignalledServer:
        with bind(0) as listening:
            server = make_server(Shell([], Access(get_port(listening), "k")), drain_seconds=1)
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
        config = make_server(Shell([], Access(get_port(listening), "k")), drain_seconds=1).config
    assert isinstance(config.http, type) and config.http.__mro__[1].__name__ == "LimitedProtocol"
    assert (config.ws, config.loop, config.access_log, config.server_header) == (
        "none",
        "asyncio",
        False,
        False,
    )
