"""The same bits in every run: what a GPU needs for it beforehand, and what it costs there."""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pellucid.training.objective import Objective

SETTING, VALUE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
TRIES = 5
"""The fastest of so many counts."""


def prepare(threads: int = 0) -> None:
    """cuBLAS is deterministic with memory of a fixed size, which it asks for at its first product only. A sum
    by another number of threads is another sum; 0 leaves the number as it is."""
    os.environ.setdefault(SETTING, VALUE)
    if threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def switched(on: bool) -> Iterator[None]:
    """Deterministic algorithms or not, in this block. Memory that nobody has written yet is left as it is:
    torch would fill it, which takes time, and nothing here reads any."""
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filling = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(on)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filling


def price(objective: Objective, rows: int, length: int) -> str:
    """How much longer a forward and a backward pass take for the same bits; nothing is changed by it."""
    device = objective.model.device
    dice = torch.Generator(device).manual_seed(0)
    ids = torch.randint(objective.model.config.vocab_size, (rows, length), generator=dice, device=device)
    seconds = dict.fromkeys((False, True), math.inf)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for on in (False, True) * TRIES:  # in turns, so that both meet the same disturbances
            with switched(on):
                seconds[on] = min(seconds[on], _seconds(objective, ids))
    more = seconds[True] / seconds[False] - 1
    return (
        f"deterministic: forward and backward of {rows} rows take {1e3 * seconds[True]:.1f} ms, and "
        f"{1e3 * seconds[False]:.1f} ms with train.deterministic=false; {more:+.0%}, not compiled"
    )


def _seconds(objective: Objective, ids: Tensor) -> float:
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    begun = time.perf_counter()
    torch.autograd.grad(objective(ids, ids), parameters)
    if ids.is_cuda:
        torch.cuda.synchronize(ids.device)
    return time.perf_counter() - begun
