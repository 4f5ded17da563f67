"""A client that is slow, does not read, or does not send HTTP."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pellucid.server.http.limits import LIMITS
from tests.server.serving import KEY, Running, read_all, run_server, seconds_until_closed

SHORT = replace(LIMITS, head_seconds=0.2, body_seconds=0.2, unread_seconds=0.5, idle_seconds=1)


@pytest.fixture(scope="module")
def hurried() -> Iterator[Running]:
    """A server whose clocks run out within a second."""
    with run_server(SHORT) as running:
        yield running


def make_head(server: Running, line: str = "POST /api/run", *fields: str) -> bytes:
    lines = [f"{line} HTTP/1.1", f"Host: {server.host}", f"Authorization: Bearer {KEY}", *fields]
    return "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode()


def test_half_a_second_head_is_closed(hurried: Running) -> None:
    with hurried.connect() as client:
        client.sendall(make_head(hurried, "GET /api/session"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /api")
        assert seconds_until_closed(client) < 1


def test_a_body_that_is_not_read_is_not_waited_for(hurried: Running) -> None:
    """A GET with a body that never comes."""
    with hurried.connect() as client:
        client.sendall(make_head(hurried, "GET /api/session", "Content-Length: 100"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert seconds_until_closed(client) < 4


def test_a_client_that_reads_slowly_is_not_disconnected(hurried: Running) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)  # holds a whole segment
        client.settimeout(10)
        client.connect(("127.0.0.1", hurried.port))
        client.sendall(make_head(hurried, "GET /api/large"))
        found, began = 0, time.monotonic()
        while time.monotonic() - began < 0.8:
            found += len(client.recv(1 << 16))
            time.sleep(0.02)
        assert found + len(read_all(client)) > 5_000_000


def test_a_broken_chunk_ends_the_request_alone(server: Running) -> None:
    head = make_head(server, "POST /api/run", "Transfer-Encoding: chunked")
    answer = server.send(head + b'2\r\n{"\r\nnot a size\r\n')
    assert answer.startswith(b"HTTP/1.1 400")
    assert server.ask("GET", "/api/session").status == 200


def test_requests_one_after_another_on_one_connection(server: Running) -> None:
    with server.connect() as client:
        client.sendall(make_head(server, "GET /api/session") * 3 + make_head(server, "GET /nothing"))
        client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
    assert answer.count(b"HTTP/1.1 200") == 3 and answer.count(b"HTTP/1.1 404") == 1


def test_a_web_socket_is_not_opened(server: Running) -> None:
    fields = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: x",
    )
    answer = server.send(make_head(server, "GET /api/session", *fields))
    assert not answer.startswith(b"HTTP/1.1 101")
