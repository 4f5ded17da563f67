"""The engine of generation beside the model's own forward pass, and slots beside paged blocks.

    PELLUCID_SMOLLM2=smollm2.gguf python -m benchmarks.generation [--device cuda] [--new 64]

Without the file the shape of SmolLM2-135M is filled with random weights: the speed is the same. Ways take
turns within one run, and the best of each is printed.
"""

import argparse
import datetime
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.engine import weights
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling

PROMPT, BLOCK, ROUNDS = 16, 16, 3
"""Tokens of a prompt and of a page, and how often each way is timed after its first run."""


def take_turns(ways: dict[str, Callable[[], float]], times: int = ROUNDS) -> dict[str, float]:
    """Returns the least seconds of each way."""
    best = {name: way() for name, way in ways.items()}
    for _ in range(times):
        best = {name: min(best[name], way()) for name, way in ways.items()}
    return best


def wait(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def run_forward(model: Transformer, prompt: list[int], new: int) -> float:
    """Seconds of the decode steps of the model alone: `forward_cached` and an argmax."""
    with torch.inference_mode():
        cache = Cache(model.config, 1, len(prompt) + new, dtype=model.dtype, device=model.device)
        ids = torch.tensor([prompt], device=model.device)
        token = model.forward_cached(ids, cache, last_only=True).argmax(-1)
        start = wait(model.device)
        for _ in range(new - 1):
            token = model.forward_cached(token, cache).argmax(-1)
            token.item()
        return wait(model.device) - start


def run_engine(
    model: Transformer, prompt: list[int], new: int, count: int, sampling: dict[str, Any]
) -> float:
    """Seconds from the first token of the last request to the last token of all."""
    engine = Engine(model, slots=count, capacity=len(prompt) + new)
    handles = [
        engine.add(Request(tuple(prompt), Sampling(max_new_tokens=new, seed=i, **sampling)), streams=False)
        for i in range(count)
    ]
    while any(not handle.strategy.outputs[0].ids for handle in handles):
        engine.step()
    start = wait(model.device)
    while engine.step():
        pass
    return wait(model.device) - start


def attend_slots(k: Any, v: Any, q: Any, length: int) -> Any:
    """One decode step's attention of one layer: every row reads its own first slots, in place."""
    return [
        F.scaled_dot_product_attention(q[i : i + 1], k[i : i + 1, :, :length], v[i : i + 1, :, :length])
        for i in range(len(q))
    ]


def attend_pages(k: Any, v: Any, q: Any, table: Any, length: int) -> Any:
    """The same where keys lie in blocks of a common pool: they are gathered first, row by row."""
    found = []
    for i in range(len(q)):
        keys, values = (pool[table[i]].transpose(0, 1).flatten(1, 2)[None, :, :length] for pool in (k, v))
        found.append(F.scaled_dot_product_attention(q[i : i + 1], keys, values))
    return found


def compare_layouts(model: Transformer, rows: int, length: int) -> dict[str, float]:
    """Seconds of the attention of all layers in one decode step of `rows` rows."""
    config, device, dtype = model.config, model.device, model.dtype
    heads, width, groups = config.n_kv_head, config.d_head, config.n_head // config.n_kv_head
    q = torch.randn(rows, heads, groups, width, device=device, dtype=dtype)
    slots = [torch.randn(rows, heads, length, width, device=device, dtype=dtype) for _ in "kv"]
    blocks = -(-length // BLOCK)
    pools = [torch.randn(rows * blocks, heads, BLOCK, width, device=device, dtype=dtype) for _ in "kv"]
    table = torch.randperm(rows * blocks, device=device).view(rows, blocks)

    def time_layers(attend: Callable[[], Any]) -> float:
        with torch.inference_mode():
            start = wait(device)
            for _ in range(config.n_layer):
                attend()
            return wait(device) - start

    return take_turns(
        {
            "slots": lambda: time_layers(lambda: attend_slots(*slots, q, length)),
            "pages": lambda: time_layers(lambda: attend_pages(*pools, q, table, length)),
            "slots, one call": lambda: time_layers(lambda: F.scaled_dot_product_attention(q, *slots)),
            "pages, one call": lambda: time_layers(
                lambda: F.scaled_dot_product_attention(
                    q, *(pool[table].transpose(1, 2).flatten(2, 3)[:, :, :length] for pool in pools)
                )
            ),
        },
        times=6,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--requests", type=int, default=8)
    given = parser.parse_args()
    config, arrays = weights()
    model = Transformer.from_weights(config, arrays, given.device, getattr(torch, given.dtype))
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{datetime.date.today()}  torch {torch.__version__}  {platform.machine()}  {name}  {given.dtype}")
    prompt, new, count = list(range(100, 100 + PROMPT)), given.new, given.requests
    ways: dict[str, Callable[[], float]] = {
        "the model's forward, greedy": lambda: run_forward(model, prompt, new),
        "engine, greedy": lambda: run_engine(model, prompt, new, 1, {}),
        "engine, temperature 0.8, top_p 0.9": lambda: run_engine(
            model, prompt, new, 1, {"temperature": 0.8, "top_p": 0.9}
        ),
        f"engine, {count} requests, greedy": lambda: run_engine(model, prompt, new, count, {}),
    }
    best = take_turns(ways)
    base = best["the model's forward, greedy"]
    for way, seconds in best.items():
        tokens = (new - 1) * (count if "requests" in way else 1)
        print(f"  {way:40} {tokens / seconds:8.1f} tok/s   {seconds / base:6.3f} × the forward's time")
    for rows, length in ((1, 512), (8, 512), (8, 2048)):
        found = compare_layouts(model, rows, length)
        shown = "   ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in found.items())
        print(f"  attention of a step, {rows} rows of {length}: {shown}")


if __name__ == "__main__":
    main()
