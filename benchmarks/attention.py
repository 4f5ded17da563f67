"""How attention grows: the time of one head's forward with the length of the text, linear beside softmax; the
memory of a cache while it decodes; the error of random features with their number.

python -m benchmarks.attention [--threads 2]

An exponent is the slope of a least-squares line through the logarithms: 1 for what doubles with the text, 2
for what grows fourfold. Threads wait for each other: where the cores are busy with something else, use one.
"""

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.engine import attentions
from pellucid.engine.attentions import AttentionInputs
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.interpretability.attention_distance import distances

LENGTHS = [1024 * 2**i for i in range(6)]
DECODED = [1024, 4096, 16384, 65536]
WINDOW, PIECE, FEATURES = 256, 1024, [64, 256, 1024, 4096]
SIZES = {"vocab_size": 64, "n_layer": 2, "n_head": 2, "n_kv_head": 1, "d_model": 64, "d_head": 32, "d_ff": 64}


def config_of(length: int = 64, **choices: object) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"context_length": length} | choices)


def drawn(config: ModelConfig, scale: float = 0.1) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {name: scale * draw.standard_normal(shape) for name, shape in config.parameters().items()}


def best(run: Callable[[], object], seconds: float = 0.5) -> float:
    """The shortest of as many runs as fit, and of three at least; the first is not counted."""
    run()
    found: list[float] = []
    while len(found) < 3 or sum(found) < seconds:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def exponent(sizes: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def seconds(kind: str, length: int) -> float:
    """One layer's z from random q, k and v under the causal mask."""
    config = config_of(length, attention=kind)
    attend = attentions.make(config, "blocks.0.attn")
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(1, config.n_head, length, config.d_head, generator=draw)
    k, v = torch.randn(2, 1, config.n_kv_head, length, config.d_head, generator=draw)
    inputs = AttentionInputs(rotation=None, bias=None, mask=None, is_causal=True)
    return best(lambda: attend(q, k, v, inputs, None))


def decoded_bytes(choices: dict[str, object], length: int) -> int:
    """Returns the bytes that a cache holds after this number of tokens."""
    config = config_of(length, **choices)
    model = Transformer.from_weights(config, drawn(config))
    cache = Cache(config, 1, length)
    for _ in range(length // PIECE):
        model.hidden_states(torch.zeros(1, PIECE, dtype=torch.int64), cache=_reserved(cache))
        cache.advance(PIECE)
    return cache.bytes


def _reserved(cache: Cache) -> Cache:
    cache.reserve(PIECE)
    return cache


def features_error(features: int) -> float:
    """Mean total variation between the pattern of random features and softmax's, over layers and seeds."""
    found = []
    for seed in range(8):
        kind = {"kind": "linear_random", "features": features, "seed": seed}
        config = config_of(attention=kind, n_layer=1)
        ids = np.random.default_rng(seed).integers(0, config.vocab_size, (1, 32))
        found += [layer.total_variation for layer in distances(config, drawn(config), ids)]
    return float(np.mean(found))


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    print(
        f"{datetime.date.today()}  {platform.machine()}, {os.cpu_count()} cores, "
        f"threads: {torch.get_num_threads()}, torch {torch.__version__}, float32"
    )
    print(f"forward of attention, {SIZES['n_head']} heads of {SIZES['d_head']} channels, milliseconds:")
    print(f"{'':<16}" + "".join(f"{length:>9,}" for length in LENGTHS) + "   exponent")
    for kind, asked in (
        ("linear_elu", "≈ 1"),
        ("linear_relu", "≈ 1"),
        ("linear_random", "≈ 1"),
        ("softmax", "≈ 2"),
    ):
        times = [seconds(kind, length) for length in LENGTHS]
        shown = "".join(f"{1000 * t:>9.1f}" for t in times)
        print(f"{kind:<16}{shown}   {exponent(LENGTHS, times):.2f} (asked {asked})")
    print(f"cache after a number of tokens, bytes (a window of {WINDOW}):")
    print(f"{'':<16}" + "".join(f"{length:>13,}" for length in DECODED))
    kept = {
        "window": {"mask": {"kind": "window", "size": WINDOW}},
        "linear_elu": {"attention": "linear_elu"},
    }
    for name, choices in kept.items():
        sizes = [decoded_bytes(choices, length) for length in DECODED]
        constant = "constant" if len(set(sizes)) == 1 else "NOT constant"
        print(f"{name:<16}" + "".join(f"{size:>13,}" for size in sizes) + f"   {constant} (asked constant)")
    whole = [Cache(config_of(length), 1, length).bytes for length in DECODED]
    print(f"{'all keys':<16}" + "".join(f"{size:>13,}" for size in whole) + "   for comparison")
    errors = [features_error(count) for count in FEATURES]
    print("distance of random features from softmax's pattern, total variation:")
    print(f"{'features':<16}" + "".join(f"{count:>9,}" for count in FEATURES) + "   exponent")
    shown = "".join(f"{error:>9.4f}" for error in errors)
    print(f"{'':<16}{shown}   {exponent(FEATURES, errors):.2f} (asked ≈ -0.5)")


if __name__ == "__main__":
    main()
