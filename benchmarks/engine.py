"""The fast engine's speed beside its limit and beside `transformers`, in the same run.

PELLUCID_SMOLLM2=smollm2.gguf python -m benchmarks.engine [--device cuda]

Without the file the shape of SmolLM2-135M is filled with random weights: the speed is the same.
"""

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pellucid.config import ModelConfig, preset
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import load

PROMPT, LONG, NEW = 16, 512, 64


def best(run: Callable[[], object], times: int = 5) -> float:
    run()
    found = []
    for _ in range(times):
        _settle()
        start = time.perf_counter()
        run()
        _settle()
        found.append(time.perf_counter() - start)
    return min(found)


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def weights() -> tuple[ModelConfig, dict[str, Any]]:
    if path := os.environ.get("PELLUCID_SMOLLM2"):
        start = time.perf_counter()
        model = load(path)
        model.module  # noqa: B018
        print(f"load from GGUF into float32       {time.perf_counter() - start:8.2f} s      (asked ≤ 4)")
        return model.config, model.weights
    config, draw = preset("smollm2-135m"), np.random.default_rng(0)
    shapes = config.parameters()
    return config, {
        name: (draw.standard_normal(shape, dtype=np.float32) * 0.02 if len(shape) > 1 else np.ones(shape))
        for name, shape in shapes.items()
    }


def theirs(config: ModelConfig, ours: Transformer, dtype: torch.dtype) -> Any:
    """Their Llama with our weights; pairs or halves cost the same, so the layout is left alone."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layer,
            num_attention_heads=config.n_head,
            num_key_value_heads=config.n_kv_head,
            max_position_embeddings=config.context_length,
            tie_word_embeddings=True,
        )
    )
    return model.to(ours.device, dtype).eval()


def decode(model: Transformer, prompt: list[int]) -> None:
    engine = Engine(model, slots=1, capacity=len(prompt) + NEW)
    engine.add(Request(tuple(prompt), Sampling(max_new_tokens=NEW))).result()


def bandwidth(model: Transformer) -> float:
    """Bytes a second that reading the weights reaches."""
    parameters = list(model.parameters())
    size = sum(p.nbytes for p in parameters)
    return size / best(lambda: [p.sum() for p in parameters])


def compiled_decode(model: Transformer, prompt: list[int]) -> float:
    """Tokens a second with a cache that never changes its shape, the step compiled once."""
    mode = "reduce-overhead" if model.device.type == "cuda" else "default"
    step = torch.compile(lambda ids, cache: model(ids, cache=cache).argmax(-1), fullgraph=True, mode=mode)
    capacity = 256
    with torch.no_grad():
        cache = Cache(model.config, 1, capacity, dtype=model.dtype, device=model.device, stride=capacity)

        def run() -> None:
            cache.crop(0)
            ids = model.forward_cached(
                torch.tensor([prompt], device=model.device), cache, last_only=True
            ).argmax(-1)
            for _ in range(NEW - 1):
                ids = step(ids, cache).clone()
                cache.advance(1)

        return NEW / best(run, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="also the compiled step (takes a minute)")
    options = parser.parse_args()
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    print(f"{datetime.date.today()}  {platform.machine()}, {where}, torch {torch.__version__}")
    config, held = weights()
    draw = np.random.default_rng(1)
    prompt = draw.integers(0, config.vocab_size, PROMPT).tolist()
    long = torch.tensor([draw.integers(0, config.vocab_size, LONG).tolist()], device=options.device)
    for dtype in (torch.bfloat16, torch.float32):
        ours = Transformer.from_weights(config, held, options.device, dtype).eval()
        measure(ours, theirs(config, ours, dtype), prompt, long)
        if options.compile:
            name = str(dtype).removeprefix("torch.")
            print(f"decode, compiled step, {name:<9}   {compiled_decode(ours, prompt):8.1f} tokens/s")


def measure(ours: Transformer, peer: Any, prompt: list[int], long: torch.Tensor) -> None:
    """Forward and decoding, ours and theirs, one after the other."""
    name = str(ours.dtype).removeprefix("torch.")
    limit = bandwidth(ours) / sum(p.nbytes for p in ours.parameters())
    ids = torch.tensor([prompt], device=ours.device)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    with torch.inference_mode():
        mine, other = best(lambda: ours(long)), best(lambda: peer(long))
        print(
            f"forward of {LONG}, {name:<9}            {LONG / mine:8.0f} tokens/s; transformers "
            f"{LONG / other:.0f}: {other / mine:.2f} × (asked ≥ 1.0 in bfloat16)"
        )
        mine = NEW / best(lambda: decode(ours, prompt), 3)
        other = NEW / best(lambda: peer.generate(ids, **options), 3)
        print(
            f"decode, one request, {name:<9}      {mine:8.1f} tokens/s; transformers {other:.1f}: "
            f"{mine / other:.2f} × (asked ≥ 2); {mine / limit:.0%} of reading the weights once a token"
        )


if __name__ == "__main__":
    main()
