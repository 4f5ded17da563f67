"""Clients that are slow, silent, many, rude or gone, against a served model: each costs nothing but itself.

The clocks run out within a second here; what they are by default is in `Limits`.
"""

import contextlib
import json
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pellucid.server.http.limits import LIMITS
from tests.server.openai.test_serve_app import check_refusal
from tests.server.served import STAND_IN, Served, run_served, save_model
from tests.server.serving import KEY, Answer, RawClient, read_all, seconds_until_closed

SHORT = replace(LIMITS, head_seconds=0.3, body_seconds=0.3, unread_seconds=0.3, idle_seconds=1)
SLACK = 1.5
"""Seconds on a busy machine beyond what a limit says."""
PATH = "/v1/completions"
MOST = 100_000
"""Tokens of an answer that ends only because its client does."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that could write for minutes."""
    return save_model(tmp_path_factory.mktemp("long") / "long", n_layer=1, context_length=200_000)


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[Served]:
    with run_served(model, module=STAND_IN, limits=SHORT) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> RawClient:
    return RawClient(served.port)


@pytest.fixture(scope="module")
def patient(model: Path) -> Iterator[RawClient]:
    """A server with the limits that it has by default."""
    with run_served(model, module=STAND_IN) as running:
        yield RawClient(running.port)


def make_head(client: RawClient, line: str = f"POST {PATH}", *fields: str) -> bytes:
    lines = [f"{line} HTTP/1.1", f"Host: {client.host}", f"Authorization: Bearer {KEY}", *fields]
    return "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode()


def make_request(client: RawClient, **body: object) -> bytes:
    data = json.dumps({"prompt": "A", **body}).encode()
    return make_head(client, f"POST {PATH}", f"Content-Length: {len(data)}") + data


def read_answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (field.split(": ", 1) for field in fields)
    return Answer(int(line.split()[1]), dict(pairs), body)


def receive_answer(one: socket.socket) -> Answer:
    """Returns the first answer of a connection that stays open."""
    data = one.recv(1 << 16)
    while len((answer := read_answer(data)).body) < int(answer.headers["content-length"]):
        data += one.recv(1 << 16)
    return answer


def wait_until_idle(served: Served, seconds: float = 2.0) -> None:
    """Returns when nothing runs in the engine for a client that has left."""
    wait_until(lambda: served.engine.in_flight == 0, seconds)


def wait_until(is_so: Callable[[], bool], seconds: float = 2.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# ---- clients that are slow to send


def test_half_a_head_is_closed(client: RawClient) -> None:
    head, began = make_head(client), time.monotonic()
    with client.connect() as silent, client.connect() as half, client.connect() as slow:
        half.sendall(head[:30])
        with contextlib.suppress(ConnectionError):  # a byte every now and then renews no clock
            for byte in head[:20]:
                slow.sendall(bytes([byte]))
                time.sleep(0.02)
        for one in (silent, half, slow):
            assert seconds_until_closed(one) < SHORT.head_seconds + SLACK
    assert time.monotonic() - began > SHORT.head_seconds


def test_half_a_body_is_answered_with_408(client: RawClient) -> None:
    length = make_head(client, f"POST {PATH}", "Content-Length: 100")
    chunked = make_head(client, f"POST {PATH}", "Transfer-Encoding: chunked")
    halves = (length, length + b'{"prompt": ', chunked, chunked + b"5\r\n{", chunked + b"1\r\n{\r\n")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client.connect()) for _ in halves]
        for one, data in zip(clients, halves, strict=True):
            one.sendall(data)
        for one in clients:
            answer = read_answer(read_all(one))
            check_refusal(answer, 408)
            assert answer.headers["connection"] == "close"


def test_a_body_of_a_byte_every_now_and_then_is_answered_with_408(client: RawClient) -> None:
    with client.connect() as one:
        one.sendall(make_head(client, f"POST {PATH}", "Content-Length: 1000"))
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for _ in range(25):
                one.sendall(b" ")
                time.sleep(0.02)
        check_refusal(read_answer(read_all(one)), 408)
        assert time.monotonic() - began < SHORT.body_seconds + SLACK


# ---- bodies that are too large


@pytest.mark.parametrize(
    "framing", ["Content-Length: 8000001", f"Content-Length: {10**19}", "Transfer-Encoding: chunked"]
)
def test_a_body_that_is_too_long_is_refused_while_it_is_sent(patient: RawClient, framing: str) -> None:
    """The client can read why, although it has not sent all of it."""
    with patient.connect() as one:
        one.sendall(make_head(patient, f"POST {PATH}", framing))
        with contextlib.suppress(ConnectionError):
            for _ in range(9 if "chunked" in framing else 0):
                one.sendall(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")
        check_refusal(receive_answer(one), 413)


def test_a_body_that_is_announced_as_too_long_is_not_asked_for(patient: RawClient) -> None:
    """curl waits for 100 Continue before it sends a large body."""
    with patient.connect() as one:
        one.sendall(make_head(patient, f"POST {PATH}", "Content-Length: 9000000", "Expect: 100-continue"))
        check_refusal(receive_answer(one), 413)


def test_the_largest_body_is_read_and_a_larger_one_is_not(patient: RawClient) -> None:
    body = b'{"prompt": "A"}'
    assert patient.post(PATH, body + b" " * (LIMITS.body_bytes - len(body))).status == 200
    check_refusal(patient.post(PATH, body + b" " * (LIMITS.body_bytes + 1 - len(body))), 413)


# ---- clients that do not read


def connect_deaf(client: RawClient) -> socket.socket:
    """Returns a connection whose kernel takes next to nothing."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(10)
    one.connect(("127.0.0.1", client.port))
    return one


def test_a_client_that_reads_nothing_of_its_stream_is_cut(served: Served, client: RawClient) -> None:
    with connect_deaf(client) as one:
        one.sendall(make_request(client, stream=True, max_tokens=MOST, n=4))
        wait_until(lambda: served.engine.in_flight == 1)
        wait_until_idle(served, 10 * SHORT.unread_seconds + SLACK)


def test_a_client_that_reads_nothing_of_many_answers_is_cut(client: RawClient) -> None:
    with connect_deaf(client) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(make_head(client, "GET /metrics") * 500)
        time.sleep(SHORT.unread_seconds + 0.3)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # or the rest comes in small pieces
        assert len(read_all(one)) < 2_000_000
    assert client.ask("GET", "/health").status == 200


@pytest.mark.torture
def test_the_limits_by_default_are_10_and_30_seconds(patient: RawClient) -> None:
    """All three clients at once; it takes half a minute, which is the claim."""
    half = make_head(patient, f"POST {PATH}", "Content-Length: 100")
    with patient.connect() as head, patient.connect() as body, connect_deaf(patient) as deaf:
        for one in (head, body, deaf):
            one.settimeout(60)
        head.sendall(half[:30])
        body.sendall(half)
        deaf.sendall(make_request(patient, stream=True, max_tokens=MOST))
        began = time.monotonic()
        read_all(head)
        assert 9.5 < time.monotonic() - began < 12
        check_refusal(read_answer(read_all(body)), 408)
        assert time.monotonic() - began < 13
        gauge = b"pellucid_slots_used 1.0"
        assert gauge in patient.ask("GET", "/metrics").body
        while gauge in patient.ask("GET", "/metrics").body:
            assert time.monotonic() - began < 45
            time.sleep(0.1)
        assert time.monotonic() - began > 29


# ---- clients that leave


def test_whoever_leaves_at_any_time_leaves_nothing_running(served: Served, client: RawClient) -> None:
    """With an ordinary end, or with a reset, at every part of a request."""
    whole = make_request(client, stream=True, max_tokens=MOST)
    cuts = [*range(0, len(whole), 29), len(whole)]
    for cut in cuts:
        for is_reset in (False, True):
            with client.connect() as one:
                if is_reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sendall(whole[:cut])
                if cut == len(whole):
                    assert one.recv(16) == b"HTTP/1.1 200 OK\r"
    wait_until_idle(served)
    assert client.ask("GET", "/health").status == 200


@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_slot_of_a_client_that_left_is_free_at_once(
    served: Served, client: RawClient, is_streamed: bool
) -> None:
    with client.connect() as one:
        one.sendall(make_request(client, stream=is_streamed, max_tokens=MOST))
        wait_until(lambda: served.engine.in_flight == 1)
    began = time.monotonic()
    wait_until_idle(served)
    assert time.monotonic() - began < 0.5


def test_the_slot_of_a_client_that_asked_again_and_left_is_free_at_once(
    served: Served, client: RawClient
) -> None:
    """uvicorn reads no further than the first byte of the second request."""
    with client.connect() as one:
        one.sendall(make_request(client, max_tokens=MOST))
        wait_until(lambda: served.engine.in_flight == 1)
        one.sendall(make_request(client, max_tokens=MOST))
        time.sleep(0.005)
    wait_until_idle(served, 0.5)


# ---- many clients


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.torture)])
def test_idle_connections_do_no_harm(served: Served, client: RawClient, count: int) -> None:
    with more_files(4 * count), contextlib.ExitStack() as stack:
        idle = [stack.enter_context(client.connect()) for _ in range(count)]
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert client.ask("GET", "/health").status == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.5
        assert client.post(PATH, b'{"prompt": "A", "max_tokens": 4}').status == 200
        assert all(seconds_until_closed(one) < SHORT.head_seconds + SLACK for one in idle)


@contextlib.contextmanager
def more_files(count: int) -> Iterator[None]:
    """Lets this process, which is client and server, open as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_streams_go_on_beside_every_kind_of_bad_client(served: Served, client: RawClient) -> None:
    texts: list[list[str]] = [[] for _ in range(4)]

    def read(into: list[str]) -> None:
        events = served.stream(PATH, prompt="A", max_tokens=200)
        into += (event if isinstance(event, str) else event["choices"][0]["text"] for event in events)

    readers = [threading.Thread(target=read, args=(text,)) for text in texts]
    for reader in readers:
        reader.start()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            half = stack.enter_context(client.connect())
            half.sendall(make_head(client)[:40])
            client.send(b"\x16\x03\x01\x02\x00\x01\x00")
            client.send(make_head(client, f"POST {PATH}", "Transfer-Encoding: chunked") + b"zz\r\n")
    for reader in readers:
        reader.join()
    wanted = "".join(f" {i}" for i in range(200)) + "[DONE]"
    assert all("".join(text) == wanted for text in texts)


# ---- what is not HTTP, or is two things at once


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"\r\n\r\n\r\nx",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"G\xcbT / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost x\n\n",
        b"GET /health HTTP/1.1\r\nHo st: x\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_the_body_of_every_error(client: RawClient, data: bytes) -> None:
    answer = read_answer(client.send(data))
    check_refusal(answer, answer.status)
    assert answer.status in (400, 501)


def test_an_endless_head_is_refused_with_the_body_of_every_error(client: RawClient) -> None:
    with client.connect() as one:
        one.sendall(f"GET /health HTTP/1.1\r\nHost: {client.host}\r\nX: ".encode() + b"y" * 1_000_000)
        check_refusal(receive_answer(one), 431)
