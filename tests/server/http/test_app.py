"""Errors have one form, and every answer the security headers."""

import asyncio
import http.client
import json
import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pellucid.server.http.app import ShellRoute
from tests.server.serving import KEY, Running, run_server

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def test_every_answer_has_the_security_headers_once(server: Running) -> None:
    answers = [
        server.ask("GET", "/"),
        server.ask("GET", "/explore/"),
        server.ask("HEAD", "/explore/main.js"),
        server.ask("GET", "/nothing"),
        server.ask("GET", "/api/session"),
        server.ask("GET", "/api/session", key=None),
        server.ask("GET", "/", Host="evil.example"),
        server.ask("PUT", "/"),
        server.ask("GET", "/", X="y" * 70_000),
        server.post("/api/run", b"{"),
    ]
    assert [answer.status for answer in answers] == [307, 200, 200, 404, 200, 401, 400, 405, 431, 400]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "server" not in {name.lower() for name in answer.headers}
    raw = server.send(f"GET /nothing HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode()).lower()
    assert all(raw.count(name.encode()) == 1 for name in HEADERS)


def test_a_fault_of_ours_is_logged_without_what_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    prompt = "-".join(("a", "secret"))  # a traceback shows lines of this file

    async def fail(request: Request) -> Response:
        try:
            raise KeyError(prompt)
        except KeyError:
            raise ZeroDivisionError(prompt) from None

    async def fail_late(request: Request) -> Response:
        return StreamingResponse(fail_in_the_middle())

    async def fail_in_the_middle() -> AsyncIterator[bytes]:
        yield b"beginning"
        raise ValueError(prompt)

    routes = [ShellRoute("/fail", fail), ShellRoute("/late", fail_late)]
    with run_server(more=routes) as running, caplog.at_level(logging.ERROR):
        answer = running.ask("GET", "/fail")
        assert (
            answer.status == 500 and prompt.encode() not in answer.body and json.loads(answer.body)["error"]
        )
        with pytest.raises(http.client.HTTPException):
            running.ask("GET", "/late")
        assert running.ask("GET", "/explore/").status == 200
    assert all(word in caplog.text for word in ("ZeroDivisionError", "KeyError", "ValueError", "in fail_in"))
    assert prompt not in caplog.text


def test_an_answer_that_takes_too_long_when_the_server_ends_is_refused() -> None:
    begun = threading.Event()

    async def wait(request: Request) -> Response:
        begun.set()
        await asyncio.sleep(60)
        return Response(b"{}")

    with ThreadPoolExecutor(1) as pool:
        with run_server(more=[ShellRoute("/wait", wait)]) as running:
            asked = pool.submit(running.ask, "GET", "/wait")
            assert begun.wait(10)
        answer = asked.result(10)
    assert answer.status == 503 and answer.message and answer.headers["retry-after"]


def test_the_key_is_in_no_answer(server: Running) -> None:
    for path in ("/", "/explore/", "/nothing", "/api/session", "/api/nothing", f"/{KEY}"):
        answer = server.ask("GET", path)
        assert KEY.encode() not in answer.body and KEY not in str(answer.headers)
