"""Requests of any kind against a server that runs, and what every answer must be."""

import http.client
import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, Self

from pellucid.server.openai.fields import GENERATION, PATHS, FieldEndpoint
from tests.server.field_strategies import draw_body, draw_junk
from tests.server.served import Served

CLIENTS = 4
MOST_SENT = 3_000
"""Bytes of most bodies: longer ones are a hundredth of them."""


class Client:
    """A connection that is kept for as long as the server keeps it."""

    def __init__(self, served: Served) -> None:
        self.served, self.connection = served, served.connect()

    def send(self, path: str, data: bytes) -> tuple[int, bytes]:
        try:
            return self._send(path, data)
        except (http.client.HTTPException, ConnectionError):  # it was idle, and closed
            self.connection.close()
            self.connection = self.served.connect()
            return self._send(path, data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _send(self, path: str, data: bytes) -> tuple[int, bytes]:
        self.connection.request("POST", path, data, self.served.headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def check_answer(status: int, body: bytes) -> None:
    """Fails unless an answer is one: of a good request, or an error of the client in OpenAI's form."""
    shown = status, body[:500]
    assert 200 <= status < 500, shown
    if status != 200:
        check_error(json.loads(body))
    elif body.startswith(b"data: "):
        events = body.removesuffix(b"\n\n").split(b"\n\n")
        assert events[-1] == b"data: [DONE]", shown
        for event in events[:-1]:
            assert "error" not in json.loads(event.removeprefix(b"data: ")), event
    else:
        assert isinstance(json.loads(body), dict), shown


def check_error(body: Any) -> None:
    """Fails unless an error has the form that OpenAI's clients read."""
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}, body
    error = body["error"]
    assert error["message"].strip() and "Traceback" not in error["message"], body
    assert isinstance(error["type"], str) and isinstance(error["param"], str | None), body
    assert error["type"] != "server_error", body


def shorten(endpoint: FieldEndpoint, body: dict[str, Any]) -> dict[str, Any]:
    """Returns a request of which no text is long, where it is one at all."""
    if endpoint not in GENERATION:
        return body
    names = [name for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    if not names:
        return body | {"max_tokens": 2}
    if body.get("context") in ("crop", "roll"):
        return body | dict.fromkeys(names, 4)
    return body


def draw_request(random: Random, endpoint: FieldEndpoint, model: str) -> bytes:
    """Draws the body of a request: JSON of the table of fields, in a tenth of the cases damaged."""
    while True:
        body = shorten(endpoint, draw_body(random, endpoint))
        if "model" in body and random.randrange(4):
            body["model"] = model
        data = json.dumps(body).encode()
        if len(data) <= MOST_SENT or random.random() < 0.01:
            return data if random.randrange(10) else damage(random, data)


def damage(random: Random, data: bytes) -> bytes:
    """Draws bytes that are nearly JSON, or nothing like it."""
    at = random.randrange(len(data) + 1)
    match random.randrange(10):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + random.randbytes(3) + data[at:]
        case 2:
            return data[:at] + data[at + 1 :]
        case 3:
            return b'{"prompt": "A", "prompt": "B"}'
        case 4:
            depth = random.choice((31, 32, 33, 10_000))
            return b'{"user": ' + b"[" * depth + b"]" * depth + b"}"
        case 5:
            number = random.choice(
                (b"1e999", b"-1e999", b"-0", b"1e-999", b"NaN", b"-Infinity", b"01", b"1" * 5_000)
            )
            return data[:-1] + b', "temperature": ' + number + b"}"
        case 6:
            text = random.choice(
                (b"\\ud800", b"\\udfff\\ud800", b"\\u0000", b"\\x41", b"\xff", b"\xed\xa0\x80", b"\n")
            )
            return data[:-1] + b', "user": "' + text + b'"}'
        case 7:
            return json.dumps(draw_junk(random)).encode()
        case 8:
            return random.choice(
                (b"", b" ", b"{", b"null", b"[]", b'""', b"\xef\xbb\xbf" + data, data + data)
            )
    return data.decode().encode(random.choice(("utf-16", "utf-32")))


def fuzz(served: Served, seed: int, count: int) -> Counter[int]:
    """Sends requests to every endpoint that has fields, on a few connections at once, and returns how often
    each status was answered."""
    random, paths = Random(seed), {route.path for route in served.app.routes}
    endpoints = [endpoint for endpoint, path in PATHS.items() if path in paths]
    chosen = [random.choice(endpoints) for _ in range(count)]
    drawn = [(PATHS[one], draw_request(random, one, served.app.served.name)) for one in chosen]
    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(
            pool.map(partial(send_all, served), (drawn[i::CLIENTS] for i in range(CLIENTS))), Counter()
        )


def send_all(served: Served, drawn: Iterable[tuple[str, bytes]]) -> Counter[int]:
    """Sends requests one after the other, and returns how often each status was answered."""
    statuses = Counter[int]()
    with Client(served) as client:
        for path, data in drawn:
            try:
                status, body = client.send(path, data)
                check_answer(status, body)
            except Exception as error:
                raise AssertionError(f"{path} {data[:2000]!r}") from error
            statuses[status] += 1
    return statuses
