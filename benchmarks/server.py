"""The server beside the engine alone and beside llama.cpp's server, in the same run.

python -m benchmarks.server [--threads N] [--seconds S]; with SmolLM2 where PELLUCID_SMOLLM2 names its file,
and then with llama.cpp on that file where xllamacpp is installed

Every server runs in a process of its own, and so does the load: tokens per second, and milliseconds to the
first token and between two tokens, as the client sees them. Processor time is of the HTTP process alone.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.server.load import make_body

STREAMS = (1, 8, 64)
PARALLEL_CONTEXT = 256
"""Tokens of each of llama.cpp's slots; it shares one cache among them."""


class Measured(NamedTuple):
    """A model, and how it is asked."""

    name: str
    source: str
    slots: int
    tokens: int
    """New tokens of each answer."""
    more: dict[str, Any]
    """Further fields of each request, so that every answer has all of its tokens."""


class ServerProcess(NamedTuple):
    """A server that runs."""

    port: int
    pid: int


def start_process(command: list[str], threads: int) -> "subprocess.Popen[str]":
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@contextlib.contextmanager
def run_server(command: list[str], threads: int) -> Iterator[ServerProcess]:
    """Starts a server whose output has its address, and ends it."""
    process = start_process(command, threads)
    try:
        assert process.stdout is not None
        port = next(read_port(line) for line in process.stdout if "http://" in line)
        yield ServerProcess(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def read_port(line: str) -> int:
    """Returns the port of an address.

    >>> read_port("Serving on http://127.0.0.1:8000/v1.")
    8000
    """
    after = line.partition("http://")[2].partition(":")[2]
    return int("".join(char for char in after.partition("/")[0] if char.isdigit()))


def measure_server(server: ServerProcess, model: Measured, streams: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.server.load"]
    command += [str(value) for value in (server.port, streams, seconds, model.tokens)]
    command += ["--pid", str(server.pid), "--more", json.dumps(model.more)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def measure_engine(model: Measured, streams: int, seconds: float, threads: int) -> float:
    """Returns tokens per second of the engine alone, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.server", "--engine", json.dumps(model), str(streams)]
    process = start_process([*command, "--seconds", str(seconds)], threads)
    return float(process.communicate()[0])


def run_engine(model: Measured, streams: int, seconds: float) -> float:
    """Returns tokens per second with as many requests at once as there are streams."""
    from pellucid.generation.engine import Engine
    from pellucid.generation.handle import Handle
    from pellucid.generation.request import Request
    from pellucid.generation.settings.sampling import Sampling
    from pellucid.workbench import load

    held = load(model.source)
    engine = Engine(held.module, held.tokenizer, slots=model.slots)
    running, given, counted = list[Handle](), 0, 0
    warm = began = time.perf_counter() + seconds / 4
    while not counted or time.perf_counter() < began + seconds * 3 / 4:
        for handle in [handle for handle in running if handle.is_done]:
            running.remove(handle)
        while len(running) < streams:
            given += 1
            body = make_body(given, model.tokens)
            sampling = Sampling(
                temperature=body["temperature"], seed=given, max_new_tokens=model.tokens, stop_ids=()
            )
            request = Request(tuple(held.encode(body["prompt"])), sampling)
            running.append(engine.add(request, streams=False))
        engine.step()
        if began == warm and (now := time.perf_counter()) > warm:
            began = now
        elif began > warm:
            counted += min(len(running), model.slots)
    return counted / (time.perf_counter() - began)


def serve_llama(path: str, slots: int) -> None:
    """Runs llama.cpp's server until a signal ends the process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.port, params.verbosity, params.n_parallel, params.n_ctx = 0, 0, slots, slots * PARALLEL_CONTEXT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(os.environ["OMP_NUM_THREADS"])
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


def print_row(what: str, streams: int, found: dict[str, float], *notes: str) -> None:
    waits = (
        "/".join(f"{found[f'{name}_p{share}']:.1f}" for share in (50, 95, 99)) for name in ("first", "gap")
    )
    first, gap = waits
    print(
        f"{what:26}{streams:3} streams {found['tokens_per_second']:8.1f} tokens/s; first token {first} ms, "
        f"between tokens {gap} ms (p50/p95/p99)" + "".join(f"; {note}" for note in notes),
        flush=True,
    )
    if found["failed"]:
        print(f"    {found['failed']:.0f} answers were refused")


def measure(model: Measured, seconds: float, threads: int) -> None:
    """Prints the figures of one model for every number of streams."""
    command = [sys.executable, "-m", "pellucid.cli", "serve", model.source, "--port", "0"]
    with run_server([*command, "--slots", str(model.slots)], threads) as server:
        ours = [measure_server(server, model, streams, seconds) for streams in STREAMS]
    for streams, found in zip(STREAMS, ours, strict=True):
        alone = measure_engine(model, streams, seconds, threads)
        print_row(
            f"{model.name}, Pellucid",
            streams,
            found,
            f"engine alone {alone:.1f}: {found['tokens_per_second'] / alone:.2f} × (asked ≥ 0.9 at 64)",
            f"HTTP {found['cpu_us_per_token']:.1f} µs of CPU per token (asked ≤ 40 at 64), "
            f"the load's own {found['client_us_per_token']:.1f}",
        )
    if model.source.endswith(".gguf") and importlib.util.find_spec("xllamacpp"):
        command = [sys.executable, "-m", "benchmarks.server", "--llama", model.source, str(model.slots)]
        with run_server(command, threads) as server:
            for streams in STREAMS:
                found = measure_server(server, model, streams, seconds)
                print_row(f"{model.name}, llama.cpp", streams, found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the engine, ours and theirs")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each measurement")
    parser.add_argument("--engine", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--llama", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        model, streams = Measured(*json.loads(options.engine[0])), int(options.engine[1])
        print(run_engine(model, streams, options.seconds))
        return
    if options.llama:
        serve_llama(options.llama[0], int(options.llama[1]))
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{datetime.date.today()}  {machine}, {options.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        from tests.server.small_model import make_small_model

        make_small_model().save(f"{folder}/small")
        measure(
            Measured("2.6 M", f"{folder}/small", 64, 128, {"stop_ids": []}), options.seconds, options.threads
        )
    if path := os.environ.get("PELLUCID_SMOLLM2"):
        measure(Measured("SmolLM2", path, 32, 64, {"ignore_eos": True}), options.seconds, options.threads)


if __name__ == "__main__":
    main()
