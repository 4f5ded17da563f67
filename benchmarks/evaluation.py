"""`pellucid evaluate` beside the engine's prefill, on the same tokens, in one run.

    PELLUCID_SMOLLM2=smollm2.gguf OMP_NUM_THREADS=2 python -m benchmarks.evaluation [--text FILE]

Without the file of the model the shape of SmolLM2-135M is filled with random weights, and without a text the
ids are random: the speed is the same. Ways take turns, a window at a time, and the best time of each window
is counted. `--clock cpu` counts the time of this process on one thread, for a machine with other work.
"""

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.engine import weights
from pellucid.base.formatting import format_bytes
from pellucid.data.shard import Ids
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.scoring import score_documents
from pellucid.evaluation.windows import resolve_window
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
ROUNDS = 2


def read_ids(path: Path | None, size: int, vocab_size: int) -> Ids:
    """Returns the ids of the beginning of a text, or random ones, four bytes each."""
    name = os.environ.get("PELLUCID_SMOLLM2")
    if path is None or name is None:
        return np.random.default_rng(0).integers(0, vocab_size, size // 4)
    from pellucid.model import load

    text = path.read_bytes()[:size].decode(errors="ignore")
    return load(name).tokenizer.encode_array(text).astype(np.int64)


def evaluate(module: Transformer, ids: Ids, window: int) -> None:
    """Scores every token, as `pellucid evaluate` does."""
    document = EncodedDocument("text", ids, np.ones(len(ids) - 1, bool), None)
    for _ in score_documents(module, [document], window=window, stride=window):
        pass


def prefill(module: Transformer, ids: Ids, wants_all: bool) -> None:
    """Reads the tokens as the prompt of a request, with the log-probability of every one or without."""
    engine = Engine(module, slots=1, capacity=len(ids) + 1)
    request = Request(tuple(ids.tolist()), Sampling(max_new_tokens=1), prompt_logprobs=wants_all)
    engine.add(request, streams=False)
    while engine.step():
        pass


def measure_memory(run: Callable[[], None]) -> int:
    """Returns the bytes that a call takes at its peak, on Linux, beyond those that are there before it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = _read_status("VmRSS")
    run()
    return _read_status("VmHWM") - before


def _read_status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{key}:")))


def measure(
    ways: dict[str, Callable[[Ids], None]], windows: Sequence[Ids], clock: Callable[[], float]
) -> dict[str, float]:
    """Returns the tokens per second of each way; of every window the best of several rounds counts."""
    best: dict[str, list[float]] = {name: [] for name in ways}
    for ids in windows:
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                start = clock()
                way(ids)
                times[name].append(clock() - start)
        for name, found in times.items():
            best[name].append(min(found))
    count = sum(len(ids) - 1 for ids in windows)
    return {name: count / sum(found) for name, found in best.items()}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--text", type=Path)
    asked.add_argument("--bytes", type=int, default=50_000)
    asked.add_argument("--window", type=int)
    asked.add_argument("--clock", choices=CLOCKS, default="wall")
    given = asked.parse_args()
    config, arrays = weights()
    module = Transformer.from_weights(config, arrays).eval()
    window, _ = resolve_window(config.context_length, given.window)
    ids = read_ids(given.text, given.bytes, config.vocab_size)
    windows = [ids[i : i + window + 1] for i in range(0, len(ids) - window, window)] or [ids]
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    machine = platform.processor() or platform.machine()
    print(f"{datetime.date.today()}, {machine}, {threads}, {given.clock} time")
    print(f"{len(windows)} windows of {window:,} tokens")
    evaluate(module, ids[:257], 256)
    print(f"a window takes {format_bytes(measure_memory(lambda: evaluate(module, windows[0], window)))}")
    found = measure(
        {
            "evaluate": lambda some: evaluate(module, some, window),
            "prefill, last logits": lambda some: prefill(module, some[:-1], False),
            "prefill, log-probabilities": lambda some: prefill(module, some[:-1], True),
        },
        windows,
        CLOCKS[given.clock],
    )
    for name, rate in found.items():
        print(f"{name:28} {rate:8.1f} tokens/s {found['evaluate'] / rate:6.2f} of it by evaluate")


if __name__ == "__main__":
    main()
