"""CPU decoding: the compiled decoder on a GGUF's own blocks beside llama.cpp and `transformers`, in one run.

    PELLUCID_SMOLLM2=smollm2.gguf python -m benchmarks.decoding [--llama PYTHON] [--only PART]

PYTHON is an interpreter that has llama-cpp-python, built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON); the
wheels of llama.cpp have no AVX-512. PELLUCID_DATA names a folder with books-valid.txt. Ways take turns, and
the best of each is printed, with the fraction of the machine's read bandwidth that its weights take.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.smollm2 import text
from pellucid.base.formatting import format_bytes
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.cpu.packing import make_large_pages
from pellucid.engine.transformer import Transformer
from pellucid.formats.export import export
from pellucid.model import Model, load

NEW, ROUNDS, LONG = 128, 5, 512
LLAMA = """
import json, sys, time
from llama_cpp import Llama
threads = {"n_threads": int(sys.argv[2]), "n_threads_batch": int(sys.argv[2])}
model = Llama(sys.argv[1], n_ctx=1024, n_batch=512, verbose=False, **threads)
for line in sys.stdin:
    ids, new = json.loads(line)
    model.reset()
    began = time.perf_counter()
    model.eval(ids)
    first = time.perf_counter()
    said = []
    for _ in range(new):
        said.append(model.sample(temp=0.0))
        model.eval(said[-1:])
    print(json.dumps([first - began, time.perf_counter() - first, said]), flush=True)
"""

LLAMA_BATCH = """
import ctypes, json, sys, time
import llama_cpp as api
import numpy as np
quiet = api.llama_log_callback(lambda level, text, data: None)
api.llama_log_set(quiet, ctypes.c_void_p(0))
api.llama_backend_init()
model = api.llama_model_load_from_file(sys.argv[1].encode(), api.llama_model_default_params())
settings, rows = api.llama_context_default_params(), int(sys.argv[3])
settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = 512 * rows, 512, 512, rows
settings.n_threads = settings.n_threads_batch = int(sys.argv[2])
context = api.llama_init_from_model(model, settings)
size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
batch = api.llama_batch_init(512, 0, 1)
def decode(entries):
    batch.n_tokens = len(entries)
    for i, (token, position, row, is_wanted) in enumerate(entries):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, is_wanted
        batch.seq_id[i][0] = row
    assert api.llama_decode(context, batch) == 0
def choose(place):
    return int(np.ctypeslib.as_array(api.llama_get_logits_ith(context, place), (size,)).argmax())
for line in sys.stdin:
    ids, new = json.loads(line)
    api.llama_memory_clear(api.llama_get_memory(context), True)
    first = time.perf_counter()
    for row in range(rows):
        decode([(id, at, row, at == len(ids) - 1) for at, id in enumerate(ids)])
    last, said, began = [choose(len(ids) - 1)] * rows, [], time.perf_counter()
    for step in range(new):
        said.append(last[0])
        decode([(last[row], len(ids) + step, row, 1) for row in range(rows)])
        last = [choose(row) for row in range(rows)]
    print(json.dumps([began - first, time.perf_counter() - began, said]), flush=True)
"""
"""Decodes as many texts at once as its third argument says, in one call a step."""


def take_turns(ways: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Returns the least seconds of each way."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds + 1):
        for name, way in ways.items():
            time.sleep(0.3)  # threads of the way before spin for a while after their last work
            best[name] = min(best[name], way())
    return best


def measure_bandwidth(threads: int) -> float:
    """Returns the bytes that are read in a second: the largest of several sums over 1 GiB."""
    torch.set_num_threads(threads)
    numbers = make_large_pages(2**30).view(torch.int64).fill_(1)
    best = 0.0
    for _ in range(6):
        began = time.perf_counter()
        numbers.sum()
        best = max(best, numbers.nbytes / (time.perf_counter() - began))
    return best


class Llama:
    """llama.cpp in a process of its own, for one text or for several at once."""

    def __init__(self, python: str, path: str, threads: int, rows: int = 1) -> None:
        command = [python, "-c", LLAMA if rows == 1 else LLAMA_BATCH, path, str(threads), str(rows)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, ids: Sequence[int], new: int) -> tuple[float, float, list[int]]:
        """Returns the seconds of the prompt and of the new tokens, and these."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([list(ids), new]), file=self.process.stdin, flush=True)
        prompt, tokens, said = json.loads(self.process.stdout.readline())
        return prompt, tokens, said


def run_decoder(
    decoder: Transformer | NativeDecoder, ids: Sequence[int], new: int, cache: torch.dtype, rows: int = 1
) -> float:
    """Returns the seconds of the decode steps alone, with an argmax for each token."""
    caches = [Cache(decoder.config, 1, len(ids) + new + 1, dtype=cache) for _ in range(rows)]
    with torch.inference_mode():
        logits = torch.cat([decoder.forward_packed([(one, ids)], [len(ids) - 1]) for one in caches])
        began = time.perf_counter()
        for _ in range(new):
            tokens = (
                logits.numpy().argmax(-1).tolist()
                if logits.dtype == torch.float32
                else logits.argmax(-1).tolist()
            )
            logits = decoder.forward_packed(
                [(one, [id]) for one, id in zip(caches, tokens, strict=True)], range(rows)
            )
        return time.perf_counter() - began


DRAWN = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "seed": 0}


def run_generate(model: Model, ids: list[int], new: int, **settings: Any) -> float:
    """Returns the seconds of the whole of `generate`, greedy without settings."""
    settings = settings or {"temperature": 0}
    began = time.perf_counter()
    model.generate(ids, max_new_tokens=new, stop_ids=(), **settings)
    return time.perf_counter() - began


def read_prompt(decoder: Transformer | NativeDecoder, ids: Sequence[int], cache: torch.dtype) -> float:
    row = Cache(decoder.config, 1, len(ids), dtype=cache)
    began = time.perf_counter()
    with torch.inference_mode():
        decoder.forward_packed([(row, ids)], [len(ids) - 1])
    return time.perf_counter() - began


def report(name: str, speed: float, unit: str = "tok/s", **ratios: float) -> None:
    more = "".join(f", {ratio:.2f} × {peer}" for peer, ratio in ratios.items())
    print(f"{name:<52}{speed:9,.1f} {unit}{more}", flush=True)


def decode(path: str, python: str | None) -> None:
    model = load(path, weights="file")
    decoder = NativeDecoder(model.module)
    packed = {
        part.data_ptr(): part.nbytes for part in decoder.kept if getattr(part, "dtype", None) == torch.uint8
    }
    size = sum(packed.values())
    ids, bandwidth = model.encode("The history of the lighthouse begins"), measure_bandwidth(2)
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s; the packed weights are {format_bytes(size)}")
    peers = dict[int, float]()
    for threads in (2, 1):
        torch.set_num_threads(threads)
        decoder.threads = threads
        ways = {
            "decoder": lambda: run_decoder(decoder, ids, NEW, torch.float16),
            "generate": lambda: run_generate(model, ids, NEW),
            "generate, drawn": lambda: run_generate(model, ids, NEW, **DRAWN),
        }
        if python:
            llama = Llama(python, path, threads)
            ways["llama.cpp"] = lambda llama=llama: llama.run(ids, NEW)[1]
        best = take_turns(ways)
        peer = best.get("llama.cpp", float("nan"))
        peers[threads] = NEW / peer
        for name, seconds in best.items():
            fraction = NEW / seconds * size / bandwidth
            report(f"decode, {threads} threads: {name}", NEW / seconds, **{"llama.cpp": peer / seconds})
            if name != "llama.cpp":
                print(f"{'':<52}{fraction:9.0%} of the read bandwidth of two cores")
    decoder.threads = 2
    torch.set_num_threads(2)
    decode_batch(path, python, decoder, ids, peers[2])
    decode_groups(path, python)
    transformers(path, model, decoder, ids)


def decode_batch(
    path: str, python: str | None, decoder: NativeDecoder, ids: list[int], single: float
) -> None:
    """Eight texts at once, in steps of one token of each."""
    ways = {"decoder": lambda: run_decoder(decoder, ids, 32, torch.float16, rows=8)}
    if python:
        llama = Llama(python, path, 2, rows=8)
        ways["llama.cpp"] = lambda: llama.run(ids, 32)[1]
    best = take_turns(ways, 2 * ROUNDS)
    for name, seconds in best.items():
        ratios = {"llama.cpp": best.get("llama.cpp", float("nan")) / seconds}
        ratios["one text of llama.cpp"] = 8 * 32 / seconds / single
        report(f"decode, 8 texts at once: {name}", 8 * 32 / seconds, **ratios)


def decode_groups(path: str, python: str | None) -> None:
    """The same model in 8 bits, in groups of 32: Q8_0 in a GGUF."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "int8.gguf")
        export(path, file, "gguf", type="Q8_0")
        model = load(file, weights="file")
        decoder, ids = NativeDecoder(model.module), model.encode("The history of the lighthouse begins")
        ways = {"decoder": lambda: run_decoder(decoder, ids, NEW, torch.float16)}
        if python:
            llama = Llama(python, file, 2)
            ways["llama.cpp"] = lambda: llama.run(ids, NEW)[1]
        best = take_turns(ways)
        for name, seconds in best.items():
            ratio = best.get("llama.cpp", float("nan")) / seconds
            report(f"decode, int8 in groups of 32: {name}", NEW / seconds, **{"llama.cpp": ratio})


def transformers(path: str, model: Model, decoder: NativeDecoder, ids: list[int]) -> None:
    from transformers import AutoModelForCausalLM

    where, long = Path(path), model.encode(text())[:LONG]
    for dtype in (torch.float32, torch.bfloat16):
        theirs = AutoModelForCausalLM.from_pretrained(where.parent, gguf_file=where.name, dtype=dtype).eval()

        def generate(theirs=theirs, ids=ids) -> float:
            options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
            given = torch.tensor([ids])
            began = time.perf_counter()
            theirs.generate(given, max_new_tokens=1, **options)
            first = time.perf_counter()
            theirs.generate(given, max_new_tokens=33, **options)
            return time.perf_counter() - first - (first - began)

        def prefill(theirs=theirs, long=long) -> float:
            began = time.perf_counter()
            with torch.inference_mode():
                theirs(torch.tensor([long]), logits_to_keep=1)
            return time.perf_counter() - began

        ways = {
            "theirs": generate,
            "ours": lambda: run_decoder(decoder, ids, 33, torch.float16),
            "their prompt": prefill,
            "our prompt": lambda: read_prompt(decoder, long, torch.float16),
        }
        best, name = take_turns(ways), str(dtype).removeprefix("torch.")
        peer = f"transformers {name}"
        report(f"decode: {peer}", 32 / best["theirs"])
        report("decode: decoder", 33 / best["ours"], **{peer: 33 / best["ours"] / (32 / best["theirs"])})
        report(f"prompt of {len(long)}: {peer}", len(long) / best["their prompt"])
        report(
            f"prompt of {len(long)}: decoder",
            len(long) / best["our prompt"],
            **{peer: best["their prompt"] / best["our prompt"]},
        )


def compare(path: str) -> None:
    """How far the decoder is from the same weights as float32 numbers: top-1, KL, greedy texts."""
    floats, stored = load(path), load(path, weights="file")
    ids = floats.encode(text())
    ids = (ids * (2000 // len(ids) + 1))[:2000]
    decoder, alike, divergence = NativeDecoder(stored.module), 0, 0.0
    for start in range(0, 2000, 500):
        some = ids[start : start + 500]
        with torch.inference_mode():
            row = Cache(decoder.config, 1, 500, dtype=torch.float16)
            own = torch.log_softmax(decoder.forward_packed([(row, some)], range(500)).double(), -1)
            exact = torch.log_softmax(floats.logits(some).double(), -1)
        alike += int((own.argmax(-1) == exact.argmax(-1)).sum())
        divergence += float((exact.exp() * (exact - own)).sum())
    report("top-1 equal to float32, of 2,000 tokens", alike, "tokens")
    print(f"{'KL from float32, per token':<52}{divergence / 2000:9.1e}")
    prompts = (
        "The history of the lighthouse begins",
        "Once upon a time",
        "In physics,",
        "def main():",
        "Dear Sir,",
    )
    same, total = 0, 0
    for prompt in prompts:
        mine, exact = (
            one.generate(one.encode(prompt), max_new_tokens=128, min_new_tokens=128, temperature=0)
            for one in (stored, floats)
        )
        pairs = list(zip(mine, exact, strict=False))
        same += next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        total += len(pairs)
    report(f"greedy tokens before the first other than float32's, of {total}", same, "tokens")


def small(_: str) -> None:
    """Small models in float32 beside a plain PyTorch loop with a cache."""
    for width, layers, heads, vocabulary in ((128, 4, 4, 2048), (384, 6, 6, 4096)):
        config = ModelConfig.from_dict(
            {
                "vocab_size": vocabulary,
                "d_model": width,
                "n_layer": layers,
                "n_head": heads,
                "context_length": 512,
            }
            | {"positions": "rope", "norm": "rms_norm", "mlp": "swiglu"}
        )
        module = Transformer(config)
        model = Model.from_config(config)
        count = sum(weight.numel() for weight in module.parameters())
        ids = [1, 2, 3]

        def eager(module=module, config=config, ids=ids) -> float:
            with torch.inference_mode():
                cache = Cache(config, 1, 300, dtype=torch.float32)
                logits = module.forward_cached(torch.tensor([ids]), cache, last_only=True)
                began = time.perf_counter()
                for _ in range(NEW):
                    logits = module.forward_cached(
                        logits[:, -1].argmax(-1, keepdim=True), cache, last_only=True
                    )
                return time.perf_counter() - began

        ways = {
            "PyTorch loop": eager,
            "decoder": lambda module=module, ids=ids: run_decoder(
                NativeDecoder(module), ids, NEW, torch.float32
            ),
            "generate": lambda model=model, ids=ids: run_generate(model, ids, NEW),
        }
        best = take_turns(ways, 4 * ROUNDS)  # each is short
        for name, seconds in best.items():
            report(
                f"{count / 1e6:.1f} M parameters, float32: {name}",
                NEW / seconds,
                **{"the loop": best["PyTorch loop"] / seconds},
            )


def caches(path: str) -> None:
    """int8 and bfloat16 caches on a long context."""
    model = load(path, weights="file")
    decoder, ids = NativeDecoder(model.module), (model.encode(text()) * 8)[:1800]
    kinds = {"int8": torch.int8, "bfloat16": torch.bfloat16, "float16": torch.float16}
    best = take_turns(
        {name: lambda kind=kind: run_decoder(decoder, ids, 32, kind) for name, kind in kinds.items()}, 2
    )
    for name, seconds in best.items():
        report(
            f"decode after 1,800 tokens, {name} cache",
            32 / seconds,
            bfloat16=best["bfloat16"] / seconds,
        )


PARTS = {"decode": decode, "compare": compare, "small": small, "caches": caches}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama")
    parser.add_argument("--only", choices=[*PARTS])
    given = parser.parse_args()
    path = os.environ.get("PELLUCID_SMOLLM2", "smollm2")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    print(f"{datetime.date.today()}  {machine}  {' '.join(sys.argv[1:])}")
    for name, part in PARTS.items():
        if given.only in (None, name):
            part(path, given.llama) if name == "decode" else part(path)


if __name__ == "__main__":
    main()
