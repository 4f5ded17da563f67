"""Listening: the signals that end a server, and uvicorn with every choice made here."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from uvicorn import Config, Server

from pellucid.base.formatting import pluralize
from pellucid.server.http.app import Shell
from pellucid.server.http.protocol import LimitedProtocol

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
