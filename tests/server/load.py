"""Many streams at once from one thread: what a server sends is kept with its time, and read afterwards.

python -m tests.server.load PORT STREAMS SECONDS TOKENS prints the figures of a load as JSON, and the
processor time that each process of `--pids` took meanwhile.
"""

import argparse
import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROMPTS = ("The cat sat on", "Once upon a time", "It was a cold day and", "Tom and his dog", "In the morning")
END = b"\r\n0\r\n\r\n"
"""The last chunk of a body, with the end of the one before; a head may end with "100" and an empty line."""


@dataclass
class StreamedAnswer:
    """The bytes of one answer, and when they came."""

    key: int
    """Which of the requests it answers."""
    began: float
    is_whole: bool = False
    times: list[float] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.parts[0][9:12]) if self.parts else 0

    @property
    def arrivals(self) -> list[tuple[float, int]]:
        """When tokens came, and how many at once."""
        counts = ((at, part.count(b'"text"')) for at, part in zip(self.times, self.parts, strict=True))
        return [(at, count) for at, count in counts if count]

    def read_events(self) -> list[dict[str, Any]]:
        """Returns the events; `[DONE]` must be the last one."""
        body = remove_chunks(b"".join(self.parts).partition(b"\r\n\r\n")[2])
        *events, done, rest = body.split(b"\n\n")
        if (done, rest) != (b"data: [DONE]", b""):
            raise ValueError(f"the stream does not end with [DONE], but with {body[-200:]!r}")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]

    def read_text(self) -> str:
        return "".join(choice["text"] for event in self.read_events() for choice in event["choices"])


def remove_chunks(body: bytes) -> bytes:
    """Returns a chunked body's bytes.

    >>> remove_chunks(b"2\\r\\nab\\r\\n0\\r\\n\\r\\n")
    b'ab'
    """
    found, at = bytearray(), 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end], 16)
        if size == 0:
            return bytes(found)
        found += body[line_end + 2 : line_end + 2 + size]
        at = line_end + 4 + size


def make_body(number: int, tokens: int) -> dict[str, Any]:
    """Returns the fields of one of many requests, each with its own prompt and seed."""
    prompt = f"{PROMPTS[number % len(PROMPTS)]} {number}"
    return {"prompt": prompt, "max_tokens": tokens, "seed": number, "temperature": 1.0}


def spread(tokens: int, number: int) -> int:
    """Returns how many tokens one of many requests asks for, between a half and three halves of the mean, so
    that they do not all end at once."""
    return tokens // 2 + number * 37 % tokens + 1


def make_request(port: int, body: Mapping[str, Any], key: str | None, path: str = "/v1/completions") -> bytes:
    """Returns the bytes of a POST request."""
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


Take = Callable[[], tuple[int, bytes] | None]
"""Returns the number and the bytes of the next request; None where there is no other."""


class StreamClient(asyncio.Protocol):
    """One client, which asks again as soon as an answer has come, as often as `take` gives a request; `give`
    gets every whole answer, `begin` the number of each that begins."""

    def __init__(
        self, take: Take, give: Callable[[StreamedAnswer], None], begin: Callable[[int], None]
    ) -> None:
        self.take, self.give, self.begin = take, give, begin
        self.answer: StreamedAnswer | None = None
        """The one that is not whole yet."""
        self._transport: asyncio.Transport | None = None
        self._has_left = False
        self._request, self._tail = b"", b""

    async def run(self, port: int) -> None:
        """Returns when there is no further request, or the server refused one or left."""
        loop = asyncio.get_running_loop()
        self._take()
        while self.answer is not None and not self.answer.parts and not self._has_left:
            # once, or after each answer where the server closes the connection
            self._is_lost = loop.create_future()
            await loop.create_connection(lambda: self, "127.0.0.1", port)
            await self._is_lost

    def leave(self) -> None:
        """Closes the connection, whatever is still to come."""
        self._has_left = True
        if self._transport is not None:
            self._transport.abort()

    def _take(self) -> None:
        taken = self.take()
        self.answer = None
        if taken is not None:
            key, self._request = taken
            self.answer = StreamedAnswer(key, time.perf_counter())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) and self.answer is not None
        self._transport = transport
        if self._has_left:
            transport.abort()
        self.answer.began = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert self.answer is not None and self._transport is not None
        if len(self.answer.parts) == 1:  # the second part: a head may come alone
            self.begin(self.answer.key)
        self.answer.times.append(time.perf_counter())
        self.answer.parts.append(data)
        self._tail = (self._tail + data)[-len(END) :]
        if self.answer.status != 200:
            self.give(self.answer)
            self._transport.abort()
        elif self._tail == END:
            self.answer.is_whole = True
            self.give(self.answer)
            self._take()
            if self.answer is None:
                self._transport.close()
            else:
                self._transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost.set_result(None)


async def run_streams(
    port: int,
    streams: int,
    take: Take,
    give: Callable[[StreamedAnswer], None],
    begin: Callable[[int], None] = lambda _: None,
    until: "asyncio.Task[None] | None" = None,
) -> list[StreamedAnswer]:
    """Asks for all that `take` gives, `streams` requests at a time, and hands every whole answer to `give`.

    It leaves when `until` is done, and returns the answers that are not whole."""
    clients = [StreamClient(take, give, begin) for _ in range(streams)]
    running = asyncio.gather(*(client.run(port) for client in clients))
    await asyncio.wait([running, until] if until else [running], return_when=asyncio.FIRST_COMPLETED)
    for client in clients:
        client.leave()
    await running
    return [client.answer for client in clients if client.answer is not None]


def read_cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process and of its threads, without that of its children."""
    clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) has it; /proc counts in hundredths of a second
    return time.clock_gettime(clock)


def read_resident_bytes(pid: int) -> int:
    """Returns how much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def find_percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least a share of the values does not exceed; NaN of none."""
    if not values:
        return float("nan")
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def summarize(
    answers: list[StreamedAnswer], tokens: Callable[[int], int], began: float, ended: float
) -> dict[str, Any]:
    """Returns tokens per second and waits between tokens from one moment to another, and waits for the first
    token at any time; percentiles are in milliseconds.

    A token that is half a character has no event of its own, and a last event may have no token: how many
    tokens an event has is the mean over whole answers, whose numbers of tokens `tokens` gives.
    """
    firsts, gaps, events = list[float](), list[float](), 0
    for answer in answers:
        arrivals = answer.arrivals
        firsts += [1000 * (at - answer.began) for at, _ in arrivals[:1]]
        gaps += [
            1000 * (at - before)
            for (before, _), (at, _) in itertools.pairwise(arrivals)
            if began <= at <= ended
        ]
        events += sum(number for at, number in arrivals if began <= at <= ended)
    whole = [answer for answer in answers if answer.is_whole]
    per_event = (
        sum(tokens(answer.key) for answer in whole)
        / sum(number for answer in whole for _, number in answer.arrivals)
        if whole
        else 1.0
    )
    count = events * per_event
    found = {"tokens": count, "tokens_per_second": count / (ended - began), "answers": len(whole)}
    for name, values in (("first", firsts), ("gap", gaps)):
        found |= {f"{name}_p{share}": find_percentile(values, share / 100) for share in (50, 95, 99)}
    return found


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of a load, from when as many streams have their first token as run at once."""
    given, begun = itertools.count(1), set[int]()
    answers, moments = list[StreamedAnswer](), list[tuple[float, list[float]]]()

    def count_tokens(number: int) -> int:
        return spread(options.tokens, number)

    def take() -> tuple[int, bytes]:
        number = next(given)
        body = {**make_body(number, count_tokens(number)), "stream": True, **json.loads(options.more)}
        return number, make_request(options.port, body, options.key)

    def look() -> None:
        cpu = [time.process_time(), *map(read_cpu_seconds, options.pids)]
        moments.append((time.perf_counter(), cpu))

    async def watch() -> None:
        await asyncio.sleep(options.seconds / 4)
        while len(begun) < min(options.streams, options.slots):
            await asyncio.sleep(0.05)
        look()
        await asyncio.sleep(options.seconds * 3 / 4)
        look()

    watching = asyncio.create_task(watch())
    answers += await run_streams(
        options.port, options.streams, take, answers.append, begun.add, until=watching
    )
    if len(moments) < 2:
        raise SystemExit(f"the server left: {[bytes(b''.join(one.parts))[:500] for one in answers[:1]]}")
    (began, (own_before, *cpu_before)), (ended, (own_after, *cpu_after)) = moments
    found = summarize(answers, count_tokens, began, ended)
    failed = sum(answer.status not in (0, 200) for answer in answers)
    cpu = [
        1e6 * (after - before) / max(found["tokens"], 1)
        for before, after in zip(cpu_before, cpu_after, strict=True)
    ]
    asking = 1e6 * (own_after - own_before) / max(found["tokens"], 1)
    return {**found, "failed": failed, "cpu_us_per_token": cpu, "client_us_per_token": asking}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("streams", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--pids", type=int, nargs="*", default=[], help="whose processor time is measured")
    parser.add_argument("--slots", type=int, default=10**6, help="texts that the server runs at once")
    parser.add_argument("--key")
    parser.add_argument("--more", default="{}", help="more fields of each request, as JSON")
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
