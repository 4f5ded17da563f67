"""A server on a free port of this machine, in a thread; and requests to it, byte for byte."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pellucid.server.explorer.app import ExplorerApp
from pellucid.server.http.address import bind, get_port
from pellucid.server.http.app import ShellRoute
from pellucid.server.http.limits import LIMITS, Access, Limits
from pellucid.server.http.listen import DrainingServer

KEY = "k" * 32
FILES = {"index.html": b"<!doctype html><title>page</title>", "main.js": b"let a = 1;", "page.css": b"a{}"}


class EchoWorker:
    """Answers each question with what it was asked."""

    def __init__(self) -> None:
        self.methods = {"session": "GET", "cell": "GET", "run": "POST", "large": "GET", "wrong": "GET"}
        self.asked: list[Any] = []

    async def ask(self, question: str, parameters: Mapping[str, object], is_text: bool) -> tuple[int, bytes]:
        self.asked.append((question, dict(parameters), is_text))
        if question == "large":
            return 200, b'"' + b"x" * 5_000_000 + b'"'
        if question == "wrong":
            return 400, b'{"error": {"message": "t must be below 2."}}'
        return 200, json.dumps({"question": question, "parameters": parameters, "is_text": is_text}).encode()


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> str:
        found: str = json.loads(self.body)["error"]["message"]
        return found


@dataclass
class RawClient:
    """Requests to a server on this machine, byte for byte."""

    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | None = None, key: str | None = KEY, **headers: str
    ) -> Answer:
        """Sends a request as a browser on this machine does; a header of None is not sent."""
        given = {"Host": self.host, "Authorization": f"Bearer {key}" if key else None}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            found = connection.getresponse()
            return Answer(found.status, dict(found.headers), found.read())

    def post(self, path: str, body: bytes, **headers: str) -> Answer:
        return self.ask("POST", path, body, **{"Content_Type": "application/json", **headers})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, data: bytes) -> bytes:
        """Sends bytes as they are, and returns everything until the server closes."""
        with self.connect() as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return read_all(client)


@dataclass
class Running(RawClient):
    """A server that runs."""

    worker: EchoWorker
    app: ExplorerApp


def read_all(client: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(1 << 16):
            found += data
    return found


def seconds_until_closed(client: socket.socket) -> float:
    began = time.monotonic()
    read_all(client)
    return time.monotonic() - began


@contextlib.contextmanager
def run_server(limits: Limits = LIMITS, more: list[ShellRoute] | None = None) -> Iterator[Running]:
    worker, listening = EchoWorker(), bind(0)
    access = Access(get_port(listening), KEY, limits=limits)
    app = ExplorerApp(worker, FILES, access, more or [])
    server = DrainingServer(app, drain_seconds=1)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        yield Running(access.port, worker, app)
    finally:
        server.should_exit = True
        thread.join()
