"""Listening: the socket, the server process's signals, and uvicorn with every choice made here."""

import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

from uvicorn import Config, Server

from pellucid.errors import UsageError, file_error
from pellucid.server.app import Shell
from pellucid.server.protocol import make_protocol

SEND_BUFFER = 65_536
"""Bytes that the kernel takes for a client that does not read; by itself it takes megabytes."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def bind(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Returns a socket that listens on a port of this machine; port 0 is any free one."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # each connection inherits it
        listening.bind((host, port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use: give another with --port, or 0 for any free one."
            raise UsageError(message) from None
        raise file_error("listen on", f"port {port} of {host}", error) from None
    return listening


def get_port(listening: socket.socket) -> int:
    """Returns the port that a socket listens on."""
    port: int = listening.getsockname()[1]
    return port


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
