"""Listening: the signals that end a server, and uvicorn with every choice made here."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from uvicorn import Config, Server

from pellucid.server.app import Shell
from pellucid.server.protocol import make_protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalledServer(Server):
    """uvicorn's server; a signal ends it, and the caller decides what that means.

    uvicorn raises the signal again after it has answered the last request, and so never ends with 0.
    """

    ended_by: int | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self.handle_exit) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # the second signal waits for no request
        self.should_exit = True
        self.ended_by = sig


def make_server(app: Shell, drain_seconds: int) -> SignalledServer:
    """Returns the server of an application; `drain_seconds` is how long a last answer may take."""
    limits = app.access.limits
    config = Config(
        app,
        http=make_protocol(limits),  # uvicorn's own choice takes other parsers where they are installed
        loop="asyncio",
        ws="none",
        interface="asgi3",
        lifespan="off",
        workers=1,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="critical",  # its warnings repeat what a client sent; the shell logs our own faults
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=drain_seconds,
    )
    return SignalledServer(config)
