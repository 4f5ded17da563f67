"""Clients of a real server that leave before the end of an answer, streamed or not, hold no slot."""

import asyncio
import contextlib
import json
import random
import socket
import time
from typing import Any

import pytest

from tests.server.served import Served

PATH = "/v1/completions"


def wait_until_free(served: Served, seconds: float = 5) -> float:
    """Returns the seconds until no slot is in use."""
    began = time.perf_counter()
    while served.engine.load.slots_used or served.engine.in_flight:
        assert time.perf_counter() < began + seconds
        time.sleep(0.001)
    return time.perf_counter() - began


def leave(served: Served, wait: float, **body: Any) -> None:
    """Sends a request, and closes the connection after a while."""
    body = {"max_tokens": 100, "min_new_tokens": 100, "stop_ids": [], **body}
    with contextlib.closing(served.connect()) as connection:
        connection.request("POST", PATH, json.dumps(body), served.headers)
        if body.get("stream"):
            connection.getresponse().readline()
        time.sleep(wait)


def leave_often(served: Served, count: int, seed: int, stream: bool) -> None:
    chance, waits = random.Random(seed), []
    for _ in range(count):
        leave(served, chance.uniform(0, 0.02), prompt=["the cat", "a"], n=2, stream=stream)
        waits.append(wait_until_free(served))
    assert sorted(waits)[len(waits) // 2] < 0.05, waits
    assert served.post(PATH, prompt="a", max_tokens=1)["choices"][0]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slots(served: Served, stream: bool) -> None:
    leave_often(served, 10, 0, stream)


@pytest.mark.torture
@pytest.mark.parametrize("stream", [False, True])
def test_two_thousand_clients_that_leave_hold_nothing(served: Served, stream: bool) -> None:
    """It takes a minute: every client waits a random time of up to 20 ms before it leaves."""
    leave_often(served, 1000, 1, stream)
    tasks = asyncio.run_coroutine_threadsafe(count_tasks(), served.loop).result(5)
    assert tasks < 20


async def count_tasks() -> int:
    return len(asyncio.all_tasks())


def test_a_client_that_sent_a_further_request_and_left_frees_its_slot(served: Served) -> None:
    body = {"prompt": "the cat", "max_tokens": 100, "min_new_tokens": 100, "stop_ids": []}
    content = json.dumps(body).encode()
    head = [f"POST {PATH} HTTP/1.1", f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json"]
    head += [f"Authorization: Bearer {served.key}", f"Content-Length: {len(content)}", "", ""]
    request, waits = "\r\n".join(head).encode() + content, []
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(request)
            time.sleep(0.005)
            client.sendall(request)
            time.sleep(0.005)
        waits.append(wait_until_free(served))
    assert sorted(waits)[len(waits) // 2] < 0.05, waits
