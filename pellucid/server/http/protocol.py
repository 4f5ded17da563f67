"""HTTP/1.1 by h11, with a clock for each thing that a client can make a server wait for.

uvicorn waits without end for the rest of a request's head, and for a client to read its answer.
"""

import asyncio
import sys
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.base.errors import quote
from pellucid.server.http.limits import SECURITY_HEADERS, Limits, make_error_body

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
