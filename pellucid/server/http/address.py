"""The address of a server: the socket that listens, and the hosts by which a client may address it.

The socket is bound before anything is loaded, so that a port in use is found at once.
"""

import errno
import re
import resource
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from pellucid.base.errors import UsageError, file_error, show

SEND_BUFFER = 65_536
"""Bytes that the kernel takes for a client that does not read; by itself it takes megabytes."""
MOST_FILES = 65_536
"""Connections that a server may have open at once, where the system allows it."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""They reach this machine alone, and no other site can have them as its name."""
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_ALLOWED = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*|\[[0-9a-f:.]+\])(:(?P<port>[1-9][0-9]{{0,4}}))?")


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


# ---- hosts


def resolve_address(host: str) -> str:
    """Returns an address to listen on, in its usual form; no name server is asked.

    >>> resolve_address("localhost"), resolve_address("127.1"), resolve_address("::0001")
    ('127.0.0.1', '127.0.0.1', '::1')
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--host must be an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0; got {show(host)}."
        ) from None
    return str(found[0][4][0])


def check_exposure(address: str, key: str | None) -> None:
    """Raises where other machines could ask a server that has no key."""
    if key is None and not _parse(address).is_loopback:
        raise UsageError(
            f"other machines can reach {address}, so the server needs a key: give --api-key-file FILE or the "
            "environment variable PELLUCID_API_KEY, or omit --host to serve this machine alone."
        )


def list_own_hosts(address: str) -> list[str]:
    """Returns the address as a Host header has it; nothing for 0.0.0.0 and ::, which are every address.

    >>> list_own_hosts("192.0.2.7"), list_own_hosts("2001:db8::7"), list_own_hosts("0.0.0.0")
    (['192.0.2.7'], ['[2001:db8::7]'], [])
    """
    found = _parse(address)
    if found.is_unspecified:
        return []
    return [f"[{found}]" if found.version == 6 else str(found)]


def read_allowed_host(text: str) -> str:
    """Returns a name under which the server may be addressed, HOST or HOST:PORT.

    >>> read_allowed_host("Models.Example.org")
    'models.example.org'
    """
    name = text.lower()
    found = _ALLOWED.fullmatch(name)
    if found is None or not _is_host(found["host"]) or int(found["port"] or 1) > 65_535:
        raise UsageError(
            "--allow-host must be one host, such as models.example.org, 192.0.2.7 or localhost:9000, without "
            f"http://, a path or *; got {show(text)}."
        )
    return name


def _is_host(host: str) -> bool:
    """Returns whether a name has a possible length; or an address is one, and that of a single machine."""
    if not host.startswith("[") and not host.rpartition(".")[2].isdigit():
        return len(host) <= 253
    try:
        return list_own_hosts(host.strip("[]")) == [host]
    except ValueError:
        return False


def list_authorities(host: str, port: int) -> Iterator[str]:
    """Yields what a Host header has for an allowed host: with our port, and with the proxy's usual one.

    >>> list(list_authorities("models.example.org", 8000)), list(list_authorities("localhost:9000", 8000))
    (['models.example.org', 'models.example.org:8000'], ['localhost:9000'])
    """
    yield host
    if not re.search(r":\d+$", host):
        yield f"{host}:{port}"


def _parse(address: str) -> IPv4Address | IPv6Address:
    return ip_address(address.partition("%")[0])
