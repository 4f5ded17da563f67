"""The same bits in every run: the settings that a GPU needs for it, and what they cost."""

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
"""The fastest of these counts."""


def prepare(threads: int = 0) -> None:
    """Gives cuBLAS a workspace of fixed size, which it reads at its first product only, and sets the number
    of CPU threads, on which the order of additions depends; 0 leaves it."""
    os.environ.setdefault(SETTING, VALUE)
    if threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def switched(on: bool) -> Iterator[None]:
    """In this block torch uses deterministic algorithms, or not. Uninitialized memory is not filled, as torch
    would do by default: that takes time, and nothing here reads any."""
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


def measure_cost(objective: Objective, rows: int, length: int) -> str:
    """Returns how much longer deterministic forward and backward passes take; the state is left as it was."""
    device = objective.model.device
    rng = torch.Generator(device).manual_seed(0)
    ids = torch.randint(objective.model.config.vocab_size, (rows, length), generator=rng, device=device)
    seconds = dict.fromkeys((False, True), math.inf)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for on in (False, True) * TRIES:  # in turns, so that both are disturbed alike
            with switched(on):
                seconds[on] = min(seconds[on], _seconds(objective, ids))
    more = seconds[True] / seconds[False] - 1
    return (
        f"deterministic: forward and backward of {rows} rows take {1e3 * seconds[True]:.1f} ms, and "
        f"{1e3 * seconds[False]:.1f} ms with train.deterministic=false ({more:+.0%}); not compiled"
    )


def _seconds(objective: Objective, ids: Tensor) -> float:
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    began = time.perf_counter()
    torch.autograd.grad(objective(ids, ids), parameters)
    if ids.is_cuda:
        torch.cuda.synchronize(ids.device)
    return time.perf_counter() - began
