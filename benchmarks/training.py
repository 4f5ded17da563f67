"""A training step on a CPU, beside a nanoGPT-style step in plain PyTorch in the same run, and its limit.

python -m benchmarks.training [--eager] [--autocast] [--small] [--threads N]

Both train the same model (learned positions, LayerNorm, GELU, tied, no biases, no dropout) with AdamW and
clipping: the peer in float32, ours in float32 and with products in bfloat16 (`train.dtype=bfloat16`). They
take turns, and the best of several short runs counts, so that a busy machine slows all of them. With one
thread the time of the processor counts, which other programs hardly change.
"""

import argparse
import contextlib
import datetime
import os
import platform
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config.cost import count_flops_per_token
from pellucid.data.rows import Batch, Rows
from pellucid.training.device import use_deterministic_algorithms
from pellucid.training.recipe import Recipe
from pellucid.training.run import Run
from pellucid.training.state import TrainState

SHAPES = {
    "L4 C128 T64 B12 V65": ((4, 4, 128, 64, 65), 12),
    "L6 C192 T256 B16 V5000": ((6, 6, 192, 256, 5000), 16),
}
"""Layers, heads, channels, positions and vocabulary; sequences in a batch."""
ASKED = 1.5
"""How many times as fast as the peer's compiled step in float32 the compiled step in bfloat16 is asked to
be."""
LR, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0
ROUNDS, SECONDS = 6, 0.5
Act = Callable[[], object]


class Peer(nn.Module):
    """GPT-2 as nanoGPT writes it; with `approximate="tanh"`, with GPT-2's own curve."""

    def __init__(
        self, layers: int, heads: int, width: int, length: int, vocabulary: int, approximate: str = "none"
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PeerBlock(width, heads, approximate) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        self.tokens.weight = self.head.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class PeerBlock(nn.Module):
    def __init__(self, width: int, heads: int, approximate: str) -> None:
        super().__init__()
        self.heads, self.approximate = heads, approximate
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, 2)
        q, k, v = (part.view(batch, count, self.heads, -1).transpose(1, 2) for part in parts)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).contiguous().view(batch, count, width))
        y: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x)), approximate=self.approximate))
        return y


def peers_step(shape: tuple[int, ...], batch: int, compiled: bool, narrow: bool) -> Act:
    """nanoGPT's loop on a CPU: AdamW as PyTorch chooses, clipping, the loss read at every step."""
    torch.manual_seed(0)
    model = Peer(*shape)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS)
    forward = torch.compile(model) if compiled else model
    rows = RandomRows(shape[3], shape[4])

    def step() -> float:
        drawn = rows.take(batch, slice(0, batch))
        ids, targets = torch.from_numpy(drawn.ids), torch.from_numpy(drawn.targets)
        with torch.autocast("cpu", torch.bfloat16) if narrow else contextlib.nullcontext():
            value: Tensor = forward(ids, targets)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    return step


class RandomRows(Rows):
    """Rows of random ids: the speed is the same."""

    def __init__(self, length: int, vocabulary: int) -> None:
        self.length, self.vocabulary = length, vocabulary
        self.rng = np.random.default_rng(0)

    def take(self, count: int, local: slice) -> Batch:
        ids = self.rng.integers(0, self.vocabulary, (count, self.length + 1))[local]
        return Batch(ids[:, :-1].copy(), ids[:, 1:].copy())

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: dict[str, int]) -> None:
        pass

    def identity(self) -> dict[str, int]:
        return {}


def make_run(shape: tuple[int, ...], batch: int, mlp: str = "gelu", **train: Any) -> Run:
    """The product's own loop, on rows without a text behind them."""
    layers, heads, width, length, vocabulary = shape
    sizes = {"n_layer": layers, "n_head": heads, "d_model": width, "context_length": length}
    choices = {"positions": "learned", "norm": "layer_norm", "mlp": mlp}
    recipe = Recipe.from_dict(
        {
            "out": "nowhere",
            "steps": 1_000_000,
            "model": {**sizes, **{name: {"kind": kind} for name, kind in choices.items()}},
            "data": {"path": "random", "batch_size": batch},
            "optimizer": {
                "kind": "adamw",
                "lr": LR,
                "beta1": BETAS[0],
                "beta2": BETAS[1],
                "weight_decay": DECAY,
            },
            "train": {"clip": CLIP, **train},
        }
    )
    source = SimpleNamespace(
        tokenizer=SimpleNamespace(vocab_size=vocabulary), train=RandomRows(length, vocabulary)
    )
    return Run(TrainState(recipe, cast(Any, source)))


def race(steps: dict[str, Act]) -> dict[str, float]:
    """The shortest time of a step of each, in seconds; they take turns."""
    shortest = dict.fromkeys(steps, float("inf"))
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for act in steps.values():
        for _ in range(3):
            act()
    for _ in range(ROUNDS):
        for name, act in steps.items():
            ends = clock() + SECONDS
            while (start := clock()) < ends:
                act()
                shortest[name] = min(shortest[name], clock() - start)
    return shortest


def peak(dtype: torch.dtype) -> float:
    """Operations a second of a large product."""
    a, b = (torch.randn(1024, 1024).to(dtype) for _ in range(2))
    return 2 * 1024**3 / race({"": lambda: a @ b})[""]


def deterministic(act: Act) -> Act:
    """As the loop runs: compiled gradients of an embedding are otherwise different in every run."""

    def run() -> None:
        with use_deterministic_algorithms(True):
            act()

    return run


def make_steps(name: str, eager: bool, autocast: bool) -> dict[str, Act]:
    """Returns the steps that take turns, by who makes them, type and form."""
    shape, batch = SHAPES[name]
    steps: dict[str, Act] = {}
    for compiled in (False, True)[: 1 if eager else 2]:
        form = "compiled" if compiled else "eager"
        for dtype in ("float32", "bfloat16"):
            run = make_run(shape, batch, device="cpu", dtype=dtype, compile=compiled)
            steps[f"ours, {dtype}, {form}"] = deterministic(run.step)
            if dtype == "float32" or autocast:
                steps[f"peer, {dtype}, {form}"] = peers_step(shape, batch, compiled, dtype == "bfloat16")
    return steps


def measure(name: str, eager: bool, autocast: bool) -> None:
    """Prints, for each step, tokens a second, the ratio to the peer's fastest in float32, and the fraction of
    what the products alone allow."""
    shape, batch = SHAPES[name]
    shortest, tokens = race(make_steps(name, eager, autocast)), batch * shape[3]
    work = count_flops_per_token(make_run(shape, batch, device="cpu", compile=False).state.model.config)
    limits = {dtype: peak(getattr(torch, dtype)) / work for dtype in ("float32", "bfloat16")}
    peer = min(seconds for step, seconds in shortest.items() if step.startswith("peer, float32"))
    print(f"{name}; asked of bfloat16 ≥ {ASKED} ×")
    for dtype, limit in limits.items():
        print(f"  {'products alone, ' + dtype:<28} {limit:8.0f} tokens/s; {work * limit / 1e9:.0f} GFLOP/s")
    for step, seconds in sorted(shortest.items(), key=lambda pair: -pair[1]):
        limit = limits[step.split(", ")[1]]
        print(
            f"  {step:<28} {tokens / seconds:8.0f} tokens/s; {peer / seconds:.2f} × the float32 peer; "
            f"{tokens / seconds / limit:.0%} of the products alone",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--eager", action="store_true", help="without the compiled steps (which take minutes)"
    )
    parser.add_argument("--autocast", action="store_true", help="also the peer with bfloat16 autocast")
    parser.add_argument("--small", action="store_true", help="the first shape alone")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)  # torch's own
    print(
        f"{datetime.date.today()}  {platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} "
        f"threads, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
    )
    for name in list(SHAPES)[: 1 if options.small else None]:
        measure(name, options.eager, options.autocast)


if __name__ == "__main__":
    main()
