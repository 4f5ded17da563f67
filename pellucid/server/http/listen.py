"""Listening: uvicorn with every choice made here, a clock for each thing that a client can make a server wait
for, and the signals that end a server.

uvicorn waits without end for the rest of a request's head, and for a client to read its answer.
"""

import asyncio
import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.base.errors import quote
from pellucid.base.formatting import pluralize
from pellucid.server.http.app import Shell
from pellucid.server.http.limits import SECURITY_HEADERS, Limits, make_error_body

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

GRACE = 2.0
"""Seconds that a body's clock runs longer than its limit, so that its 408 can be sent; and seconds in which a
client can read a refusal."""
POLLS = 6
"""How often the progress of a slow reader is looked at before it is disconnected."""
NOTICE_SECONDS = 0.02
"""How soon after a further request it is noticed that the client has left."""


class LimitedProtocol(H11Protocol):
    """One connection. It closes when a head, a body or the reading of an answer takes too long, and refuses
    what is not HTTP with the same JSON error as every other refusal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits: Limits = cast(Any, self.config.app).access.limits
        self._awaited: Any = None
        self._request_clock: asyncio.TimerHandle | None = None
        self._reader_clock: asyncio.TimerHandle | None = None
        self._unread = 0
        self._stalls = 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # any byte that the client does not take starts its clock
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for clock in (self._request_clock, self._reader_clock):
            if clock:
                clock.cancel()
        super().connection_lost(exc)

    # ---- requests

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._is_refused:
            self._watch_request()
            self._watch_client()

    def _watch_request(self) -> None:
        """Starts the clock of what the client has to send next: a head, or the rest of a body."""
        state = self.conn.their_state
        if state is self._awaited:
            return
        self._awaited = state
        if self._request_clock:
            self._request_clock.cancel()
        waits = {h11.IDLE: self.limits.head_seconds, h11.SEND_BODY: self.limits.body_seconds + GRACE}
        seconds = waits.get(state)
        self._request_clock = self.loop.call_later(seconds, self.transport.close) if seconds else None

    def _watch_client(self) -> None:
        """Reads on soon while an answer is made: uvicorn stops at the first byte of a further request, and
        then does not notice that the client has left. Not at once: it may have sent all that it asks."""
        if not self.flow.read_paused or self.conn.their_state is not h11.DONE:
            return
        if len(self.conn.trailing_data[0]) < self.limits.head_bytes:
            self.loop.call_later(NOTICE_SECONDS, self.flow.resume_reading)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP, or has too long a head, and closes when the client has read it."""
        error = sys.exception()
        is_long = getattr(error, "error_status_hint", 400) == 431
        self._is_refused = True
        if self.cycle:  # what it would still send does not follow this answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in the middle of another answer
            self.transport.close()
            return
        message = (
            "the request's head is too long." if is_long else f"this is not an HTTP request: {quote(error)}."
        )
        status = 431 if is_long else 400
        self._send_refusal(status, make_error_body(message, status))

    def _send_refusal(self, status: int, body: bytes) -> None:
        headers = [
            *SECURITY_HEADERS,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        # Closing at once, with bytes of the client's unread, would reset the connection and lose the answer.
        self.transport.write_eof()
        if self._request_clock:
            self._request_clock.cancel()
        self._request_clock = self.loop.call_later(GRACE, self.transport.close)

    # ---- answers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread, self._stalls = sys.maxsize, 0
        self._reader_clock = self.loop.call_later(self.limits.unread_seconds / POLLS, self._watch_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader_clock:
            self._reader_clock.cancel()

    def _watch_reader(self) -> None:
        """Disconnects a client that has read nothing of its answer for as long as the limit says."""
        unread = self.transport.get_write_buffer_size()
        self._stalls = 0 if unread < self._unread < sys.maxsize else self._stalls + 1
        self._unread = unread
        if self._stalls >= POLLS:
            self.transport.abort()
            return
        self._reader_clock = self.loop.call_later(self.limits.unread_seconds / POLLS, self._watch_reader)


class DrainingServer(Server):
    """uvicorn's server, which a signal, or `end`, ends when it has answered what it was asked before.

    Until then it listens, so that new requests are refused with a reason; uvicorn would close its sockets at
    once. When the time is over, `give_up` ends the answers that still run. A second signal waits for nothing.
    `say` prints a line where answers are waited for.
    """

    ended_by: int | None = None

    def __init__(
        self,
        app: Shell,
        drain_seconds: int,
        give_up: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(make_config(app, drain_seconds))
        self._app, self._seconds, self._give_up, self._say = app, drain_seconds, give_up, say
        self._deadline: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes the signals while it serves; uvicorn would raise them again after the last answer, and so
        never end with 0."""
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
        self.force_exit = self.should_exit = self._app.is_ending
        self.end()
        self.ended_by = sig

    def end(self) -> None:
        """Ends the server as the first signal does."""
        self._app.is_ending = True

    async def on_tick(self, counter: int) -> bool:
        """Looks, ten times a second, whether the last answer is given or the time is over."""
        if self._app.is_ending and not self.should_exit:
            now = time.monotonic()
            if self._deadline is None:
                self._deadline = now + self._seconds
                self._say_running()
            if now >= self._deadline:
                self._give_up()
            self.should_exit = now >= self._deadline or not self._app.n_running
            # what is left is to send the ends of answers to clients that read slowly
            self.config.timeout_graceful_shutdown = max(1, math.ceil(self._deadline - now))
        if self.force_exit:
            self.config.timeout_graceful_shutdown = 1
        return await super().on_tick(counter)

    def _say_running(self) -> None:
        if self._app.n_running:
            running = pluralize(self._app.n_running, "request")
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._say(
                    f"{running} may take {self._seconds} s more; a second signal ends the server at once."
                )


def make_config(app: Shell, drain_seconds: int) -> Config:
    """Returns every choice that uvicorn leaves."""
    limits = app.access.limits
    return Config(
        app,
        http=LimitedProtocol,  # uvicorn's own choice takes other parsers where they are installed
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
