"""The socket of a server: this machine alone, and a port in use is an error with a remedy."""

import resource
import socket

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.http.address import MOST_FILES, SEND_BUFFER, bind, get_port, raise_file_limit


def test_a_port_in_use_is_refused() -> None:
    with bind(0) as first, pytest.raises(UsageError, match="--port"):
        bind(get_port(first))


def test_two_free_ports_differ_and_are_of_this_machine_alone() -> None:
    with bind(0) as first, bind(0) as second:
        assert get_port(first) != get_port(second)
        assert first.getsockname()[0] == "127.0.0.1"


def test_the_kernel_keeps_little_for_a_client_that_does_not_read() -> None:
    """Linux doubles what it is asked for."""
    with (
        bind(0) as listening,
        socket.create_connection(listening.getsockname()) as _,
        listening.accept()[0] as one,
    ):
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SEND_BUFFER


def test_asyncio_sends_each_answer_at_once() -> None:
    """It sets TCP_NODELAY only on a socket that names its protocol."""
    with bind(0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_server_may_have_more_connections_than_a_shell_lets_it() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, MOST_FILES), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
