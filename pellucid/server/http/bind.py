"""The socket of a server; it is bound before anything is loaded, so that a port in use is found at once."""

import errno
import resource
import socket

from pellucid.base.errors import UsageError, file_error

SEND_BUFFER = 65_536
"""Bytes that the kernel takes for a client that does not read; by itself it takes megabytes."""


MOST_FILES = 65_536
"""Connections that a server may have open at once, where the system allows it."""


def bind(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Returns a socket that listens on a port of this machine; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where a socket names its protocol: without, 40 ms per answer
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


def raise_file_limit() -> None:
    """Lets this process have many connections: the limit that a shell gives is 1,024 files, or 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
