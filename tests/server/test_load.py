"""A server under load: many streams at once, clients that leave, and requests that wait for their turn."""

import asyncio
import itertools
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.generation.generate import complete
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import load
from tests.server.load import (
    StreamedAnswer,
    find_percentile,
    make_body,
    make_request,
    read_resident_bytes,
    run_streams,
)
from tests.server.serve_process import ServerProcess, ask_health, run_serve
from tests.server.served import Served

STREAMS = 200
NEW_TOKENS = 24


# ---- two hundred streams


class Watch(threading.Thread):
    """Asks for `/health` on connections of its own, and looks at the memory of both processes."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self.server, self.is_over = server, threading.Event()
        self.waits = list[float]()
        self.statuses: Counter[int] = Counter()
        self.resident = list[tuple[float, tuple[int, int]]]()

    def run(self) -> None:
        engine = self.server.engine_pid
        while not self.is_over.wait(0.02):
            began = time.perf_counter()
            self.statuses[ask_health(self.server.port)] += 1
            self.waits.append(time.perf_counter() - began)
            sizes = read_resident_bytes(self.server.pid), read_resident_bytes(engine)
            self.resident.append((time.monotonic(), sizes))


def compute_texts(folder: Path, bodies: dict[int, dict[str, Any]], slots: int) -> dict[int, str]:
    """Returns the text of each request, from an engine in this process that runs `slots` at a time."""
    model = load(str(folder))
    engine = Engine(model.module, model.tokenizer, stop_ids=model.eos_ids, slots=slots)
    requests = [
        Request(
            tuple(model.encode(body["prompt"])),
            Sampling(temperature=1.0, seed=body["seed"], max_new_tokens=body["max_tokens"]),
        )
        for body in bodies.values()
    ]
    return {number: done.text for number, (done,) in zip(bodies, complete(engine, requests), strict=True)}


def check_load(folder: Path, seconds: float, slots: int, growth: float) -> None:
    """Claims of `STREAMS` streams for some seconds; the expected texts come from an engine of `slots`, and
    memory grows by less than a part in the second half of the time."""
    bodies = {n: make_body(n, tokens=4 + n % NEW_TOKENS) for n in range(STREAMS)}
    texts, counted = compute_texts(folder, bodies, slots), Counter[str]()
    with run_serve(folder) as server:
        requests = {
            n: make_request(server.port, {**body, "stream": True}, None) for n, body in bodies.items()
        }
        numbers, ends = itertools.cycle(bodies), time.monotonic() + seconds

        def take() -> tuple[int, bytes] | None:
            number = next(numbers)
            return (number, requests[number]) if time.monotonic() < ends else None

        def give(answer: StreamedAnswer) -> None:
            is_right = answer.status == 200 and answer.read_text() == texts[answer.key]
            counted["right" if is_right else f"wrong: {answer.key}"] += 1

        watch = Watch(server)
        watch.start()
        left = asyncio.run(run_streams(server.port, STREAMS, take, give))
        watch.is_over.set()
        watch.join()
    assert not left
    assert set(counted) == {"right"}
    assert counted["right"] > STREAMS
    assert set(watch.statuses) == {200}
    assert find_percentile(watch.waits, 0.99) < 0.1
    # of the time in which all streams run: each new number of texts at once takes memory, once
    resident = [sizes for at, sizes in watch.resident if at < ends]
    for before, after in zip(resident[len(resident) // 2], resident[-1], strict=True):
        assert abs(after - before) < growth * before


@pytest.mark.timed
def test_two_hundred_streams_get_their_own_texts_and_nothing_grows(small_model: Path) -> None:
    """Six seconds: memory that grows is seen only after the first ones, in which it has to."""
    check_load(small_model, 6.0, slots=32, growth=0.025)


@pytest.mark.torture
def test_two_hundred_streams_for_ten_minutes(small_model: Path) -> None:
    """The same for ten minutes, beside texts that were generated alone."""
    check_load(small_model, 600.0, slots=1, growth=0.05)


# ---- seeds


def test_a_seed_gives_the_same_text_alone_among_others_streamed_or_not(served: Served) -> None:
    body = {"prompt": "the cat", "max_tokens": 20, "temperature": 1.0, "seed": 5}
    alone = served.post("/v1/completions", **body)["choices"][0]["text"]
    streamed = [event for event in served.stream("/v1/completions", **body) if event != "[DONE]"]
    assert "".join(event["choices"][0]["text"] for event in streamed) == alone
    others = [{**body, "prompt": f"the dog {n}", "seed": n} for n in range(63)]
    found = ask_together(served, [*others, body])
    assert found[-1] == alone
    assert len(set(found)) > 60
    assert ask_together(served, [body, *others])[0] == alone


def ask_together(served: Served, bodies: list[dict[str, Any]]) -> list[str]:
    """Returns the text of each request, all of them streamed at the same time."""
    texts: dict[int, str] = {}
    left = iter(enumerate(make_request(served.port, {**body, "stream": True}, served.key) for body in bodies))

    def give(answer: StreamedAnswer) -> None:
        assert answer.status == 200
        texts[answer.key] = answer.read_text()

    asyncio.run(run_streams(served.port, len(bodies), lambda: next(left, None), give))
    return [texts[number] for number in range(len(bodies))]


# ---- first come, first served


def test_a_short_request_behind_a_hundred_long_ones_is_before_all_that_came_later(served: Served) -> None:
    long, short = {"prompt": "the", "max_tokens": 24, "stop_ids": []}, {"prompt": "the", "max_tokens": 1}
    longer = long | {"max_tokens": 120}  # so that it matters little when a thread of this test wakes up
    order, threads = list[str](), list[threading.Thread]()

    def ask(name: str, body: dict[str, Any]) -> None:
        served.post("/v1/completions", **body)
        order.append(name)

    sent = 0
    for name, count, body in (("earlier", 100, long), ("short", 1, short), ("later", 30, longer)):
        sent += count
        some = [threading.Thread(target=ask, args=(name, body)) for _ in range(count)]
        for thread in some:
            thread.start()
        threads += some
        if name != "later":
            wait_until(lambda: served.engine.in_flight + len(order) >= sent, 20)  # noqa: B023
    for thread in threads:
        thread.join()
    assert Counter(order) == {"earlier": 100, "short": 1, "later": 30}
    assert "later" not in order[: order.index("short")]


# ---- clients that leave


def check_disconnects(served: Served, count: int, seed: int = 0) -> None:
    """Clients that leave at any time, streamed or not: within a second everything is as before."""
    served.post("/v1/completions", prompt="the", max_tokens=1)
    wait_until(lambda: not served.engine.in_flight, 5)
    tasks, rng = min(count_tasks(served) for _ in range(20)), random.Random(seed)
    for start in range(0, count, 60):
        leaving = [
            threading.Thread(target=leave, args=(served, rng.random(), rng.random() < 0.5))
            for _ in range(min(60, count - start))
        ]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        wait_until(
            lambda: (
                not served.engine.in_flight
                and not served.engine.load.slots_used
                and count_tasks(served) <= tasks
            ),
            1.0,
        )


def leave(served: Served, seconds: float, is_streamed: bool) -> None:
    """Asks for a long text, and closes the connection in its middle."""
    body = {"prompt": "the cat", "max_tokens": 120, "stop_ids": [], "stream": is_streamed}
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(make_request(served.port, body, served.key))
        time.sleep(0.3 * seconds)


def count_tasks(served: Served) -> int:
    """Returns how many tasks the server's event loop has."""

    async def count() -> int:
        await asyncio.sleep(0.005)
        return len(asyncio.all_tasks()) - 1

    return asyncio.run_coroutine_threadsafe(count(), served.loop).result(10)


def wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    """Returns when something is so; fails where it is not so in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_clients_that_leave_give_everything_back(served: Served) -> None:
    before = read_cancellations(served)
    check_disconnects(served, 60)
    assert read_cancellations(served) > before


@pytest.mark.torture
def test_two_thousand_clients_that_leave_give_everything_back(served: Served) -> None:
    check_disconnects(served, 2000, seed=1)


def read_cancellations(served: Served) -> float:
    """Returns how many answers were cancelled, as the server counts them."""
    lines = served.ask("GET", "/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("pellucid_cancellations_total")))
