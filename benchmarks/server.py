"""The server beside the engine alone and beside llama.cpp's server, in the same run.

python -m benchmarks.server [--threads N] [--seconds S]; with SmolLM2 where PELLUCID_SMOLLM2 names its file,
and then with llama.cpp on that file where xllamacpp is installed

Every server runs in a process of its own, and so does the load: tokens per second, and milliseconds to the
first token and between two tokens, as the client sees them. Processor time is given of each process apart.
"""

import argparse
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
from pathlib import Path
from typing import Any, NamedTuple

from tests.server.load import make_body, spread
from tests.server.serve_process import run_serve, run_server_command

STREAMS = (1, 8, 64)
NO_END, LLAMA_NO_END = {"stop_ids": []}, {"ignore_eos": True}
"""What makes every answer have all of its tokens."""
PARALLEL_CONTEXT = 256
"""Tokens of each of llama.cpp's slots; it shares one cache among them."""


class Measured(NamedTuple):
    """A model, and how it is asked."""

    name: str
    source: str
    slots: int
    tokens: int
    """New tokens of an answer, on average."""


def make_environment(threads: int | None) -> dict[str, str]:
    """Returns the variables that set the number of threads; None leaves the choice to the engine."""
    return {} if threads is None else {"OMP_NUM_THREADS": str(threads)}


def measure_server(
    port: int, pids: list[int], model: Measured, streams: int, seconds: float, more: dict[str, Any]
) -> dict[str, Any]:
    """Returns the figures of a load in a process of its own; `more` are further fields of each request."""
    command = [sys.executable, "-m", "tests.server.load"]
    command += [str(value) for value in (port, streams, seconds, model.tokens)]
    command += ["--slots", str(model.slots), "--more", json.dumps(more), "--pids", *map(str, pids)]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def measure_engine(model: Measured, streams: int, seconds: float, threads: int | None) -> tuple[float, float]:
    """Returns tokens per second of the engine alone, in a process of its own, and its processor time in
    microseconds per token."""
    command = [sys.executable, "-m", "benchmarks.server", "--engine", json.dumps(model), str(streams)]
    command += ["--seconds", str(seconds)]
    environment = os.environ | make_environment(threads)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    speed, cpu = json.loads(done.stdout)
    return speed, cpu


def run_engine(model: Measured, streams: int, seconds: float) -> tuple[float, float]:
    """Returns what `measure_engine` does, with as many requests at once as there are streams."""
    from pellucid.generation.handle import Handle
    from pellucid.generation.request import Request
    from pellucid.generation.scheduler import Engine
    from pellucid.generation.settings.sampling import Sampling
    from pellucid.model import load
    from pellucid.server.openai.worker.process import use_threads

    held = load(model.source)
    use_threads(held)
    engine = Engine(held.module, held.tokenizer, slots=model.slots)
    running, given, counted, cpu = list[Handle](), 0, 0, 0.0
    warm = began = time.perf_counter() + seconds / 4
    while not counted or time.perf_counter() < began + seconds * 3 / 4:
        for handle in [handle for handle in running if handle.is_done]:
            running.remove(handle)
        while len(running) < streams:
            given += 1
            body = make_body(given, spread(model.tokens, given))
            sampling = Sampling(temperature=1.0, seed=given, max_new_tokens=body["max_tokens"], stop_ids=())
            request = Request(tuple(held.encode(body["prompt"])), sampling)
            running.append(engine.add(request))
        engine.step()
        new = sum(len(handle.take()) for handle in running)
        if began == warm and (now := time.perf_counter()) > warm:
            began, cpu = now, time.process_time()
        elif began > warm:
            counted += new
    speed = counted / (time.perf_counter() - began)
    return speed, 1e6 * (time.process_time() - cpu) / counted


def serve_llama(path: str, slots: int) -> None:
    """Runs llama.cpp's server until a signal ends the process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.port, params.verbosity, params.n_parallel, params.n_ctx = 0, 0, slots, slots * PARALLEL_CONTEXT
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


def print_row(what: str, streams: int, found: dict[str, Any], *notes: str) -> None:
    first, gap = (
        "/".join(f"{found[f'{name}_p{share}']:.1f}" for share in (50, 95, 99)) for name in ("first", "gap")
    )
    print(
        f"{what:22}{streams:3} streams {found['tokens_per_second']:8.1f} tokens/s; first token {first} ms, "
        f"between tokens {gap} ms (p50/p95/p99)" + "".join(f"\n    {note}" for note in notes),
        flush=True,
    )
    if found["failed"]:
        print(f"    {found['failed']} answers were refused")


def measure(model: Measured, seconds: float, threads: int | None) -> None:
    """Prints the figures of one model for every number of streams."""
    environment, ours = make_environment(threads), list[dict[str, Any]]()
    with run_serve(model.source, "--slots", str(model.slots), environment=environment) as server:
        pids = [server.pid, server.engine_pid]
        for streams in STREAMS:
            ours.append(measure_server(server.port, pids, model, streams, seconds, NO_END))
    for streams, found in zip(STREAMS, ours, strict=True):
        alone, alone_cpu = measure_engine(model, streams, seconds, threads)
        http, engine = found["cpu_us_per_token"]
        print_row(
            f"{model.name}, Pellucid",
            streams,
            found,
            f"engine alone {alone:.1f} tokens/s: {found['tokens_per_second'] / alone:.2f} × (asked ≥ 0.9)",
            f"CPU per token: HTTP {http:.1f} µs (asked ≤ 40 at 64), engine {engine:.0f} µs (alone "
            f"{alone_cpu:.0f}), the load itself {found['client_us_per_token']:.1f} µs",
        )
    if model.source.endswith(".gguf") and importlib.util.find_spec("xllamacpp"):
        command = [sys.executable, "-m", "benchmarks.server", "--llama", model.source, str(model.slots)]
        with run_server_command(command, environment) as server:
            for streams in STREAMS:
                found = measure_server(server.port, [], model, streams, seconds, LLAMA_NO_END)
                print_row(f"{model.name}, llama.cpp", streams, found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, help="of the engine; if omitted, its own choice")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each measurement")
    parser.add_argument("--engine", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--llama", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        model, streams = Measured(*json.loads(options.engine[0])), int(options.engine[1])
        print(json.dumps(run_engine(model, streams, options.seconds)))
        return
    if options.llama:
        serve_llama(options.llama[0], int(options.llama[1]))
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{datetime.date.today()}  {machine}, threads: {options.threads or 'as the engine chooses'}")
    with tempfile.TemporaryDirectory() as folder:
        from tests.server.served import save_small_model

        small = save_small_model(Path(folder) / "small")
        measure(Measured("2.5 M", str(small), 64, 128), options.seconds, options.threads)
    if path := os.environ.get("PELLUCID_SMOLLM2"):
        measure(Measured("SmolLM2", path, 32, 64), options.seconds, options.threads)


if __name__ == "__main__":
    main()
