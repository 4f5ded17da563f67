"""The FLOP/s that training steps of a model reach here, measured on a few steps of a throwaway copy."""

import statistics
import time
from dataclasses import replace

import torch

from pellucid.config import ModelConfig
from pellucid.cost import count_flops_per_token
from pellucid.model.initializations import initialise
from pellucid.model.transformer import Transformer
from pellucid.parts.optimizers.adamw import AdamW
from pellucid.training import determinism, optimizers
from pellucid.training.objective import Objective
from pellucid.training.plan import UTILIZATION
from pellucid.training.recipe.sections import TrainSettings

SECONDS, STEPS = 2.0, 4
"""Seconds of measuring at most, and timed steps at most."""


def measure_speed(
    config: ModelConfig,
    rows: int,
    length: int,
    device: str,
    dtype: str,
    peak: float,
    seconds: float = SECONDS,
) -> float | None:
    """Returns the FLOP/s of training steps; None where one step would take too long to try, and on a GPU:
    there the run is compiled, and a few steps only measure how long their kernels take to load.

    Where all rows or layers take too long, a part of them is measured: the speed is about the same. The time
    of a step is guessed from the machine's `peak`.
    """
    if device != "cpu":
        return None
    flops = count_flops_per_token(config, length) * length
    expected = seconds / (STEPS + 1) * peak * UTILIZATION
    rows = max(1, min(rows, int(expected / flops)))
    if flops > expected and config.n_layer > 1:
        config = replace(config, n_layer=max(1, int(config.n_layer * expected / flops)))
        flops = count_flops_per_token(config, length) * length
    if flops > (STEPS + 1) * expected:
        return None
    determinism.prepare()
    place = torch.device(device)
    with torch.random.fork_rng([place] if place.type == "cuda" else []):
        return rows * flops / _seconds(config, rows, length, place, dtype, seconds)


def _seconds(
    config: ModelConfig, rows: int, length: int, device: torch.device, dtype: str, most: float
) -> float:
    """Returns the median time of a step: forward, backward and update."""
    wide = torch.float64 if dtype == "float64" else torch.float32
    model = initialise(Transformer.empty(config, device, wide), TrainSettings().initialization, 0).train()
    objective = Objective(model, TrainSettings(), dtype)
    optimizer = optimizers.make(dict(model.named_parameters()), AdamW())
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (rows, length + 1), generator=rng).to(device)
    begun, times = time.perf_counter(), list[float]()
    while True:
        start = time.perf_counter()
        loss = objective(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        optimizers.update(optimizer, loss.detach().isfinite())
        optimizer.zero_grad()
        loss.item()  # waits for the device
        now = time.perf_counter()
        times.append(now - start)
        if len(times) > STEPS or now - begun + times[-1] > most:
            # The first step also sets up what the libraries need: it counts only where it is the only one.
            return statistics.median(times[1:] or times)
