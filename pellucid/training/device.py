"""Settings of how a run computes: device, number type, deterministic kernels, whether it is compiled."""

import contextlib
import math
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.engine.compiler import lacks_compiler
from pellucid.training.compiled_loss import COMPILED
from pellucid.training.objective import Objective
from pellucid.training.recipe import Recipe

CUBLAS_KEY, CUBLAS_VALUE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
TRIES = 5
"""The fastest of these counts."""
MIN_COMPILED_STEPS = {"cuda": 500, "cpu": 2000}
"""Steps from which on compiling, which takes about half a minute, saves more than it costs, by device."""


def resolve_device(name: str) -> torch.device:
    """Returns the device called cpu, cuda or cuda:N; for auto the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):  # torch has many more, such as meta, which holds shapes only
        raise UsageError(f"train.device must be one of cpu, cuda, auto; got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("train.device=cuda, and torch sees no GPU here: use cpu or auto.")
    if device.index is not None:
        torch.cuda.set_device(device)  # whose generators and kernels are then those of the run
    return device


def resolve_dtype(device: torch.device, dtype: str, weights: str = "float32") -> str:
    """Returns the type of matrix products; for auto bfloat16 on a GPU or with bfloat16 weights."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if device.type == "cuda" or weights == "bfloat16" else "float32"


def peak_memory(device: torch.device) -> int:
    """Returns the peak memory so far in bytes: the GPU's, or that of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- torch.compile


def decide_compilation(recipe: Recipe, device: torch.device, is_sharded: bool) -> str:
    """Returns COMPILED where the step is to be compiled, else "no: " and the reason."""
    wanted = recipe.train.compile
    if wanted is False:
        return "no: not asked for"
    lacks = lacks_compiler(device)
    if wanted is True and lacks:
        raise UsageError(
            "train.compile=true needs a C++ compiler, and there is no g++ or clang++ here: use auto."
        )
    if wanted is True and is_sharded:
        raise UsageError(
            "train.compile=true does not go with train.parallel=fsdp, which gathers weights on the way: use "
            "auto."
        )
    if is_sharded:
        return "no: its weights are gathered on the way"
    if lacks:
        return "no: there is no C++ compiler here"
    is_narrow = resolve_dtype(device, recipe.train.dtype, recipe.train.weights) == "bfloat16"
    if wanted == "auto" and device.type == "cpu" and not is_narrow:
        return "no: on a CPU it gains little unless train.dtype=bfloat16"
    steps = recipe.steps_at(0)  # as it began: more steps do not change how the first ones were made
    if wanted == "auto" and steps < MIN_COMPILED_STEPS[device.type]:
        return f"no: {steps} steps are too few to earn it"
    return COMPILED


# ---- deterministic kernels


def configure_torch(threads: int = 0) -> None:
    """Gives cuBLAS a workspace of fixed size, which it reads at its first product only, and sets the number
    of CPU threads, on which the order of additions depends; 0 keeps torch's."""
    os.environ.setdefault(CUBLAS_KEY, CUBLAS_VALUE)
    if threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def use_deterministic_algorithms(is_on: bool) -> Iterator[None]:
    """Switches torch's deterministic algorithms on or off in this block. Uninitialized memory is not filled,
    as torch would do by default: that takes time, and nothing here reads any."""
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filling = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(is_on)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filling


def describe_determinism_cost(objective: Objective, rows: int, length: int) -> str:
    """Measures how much longer deterministic forward and backward passes take; the state stays as it was."""
    device = objective.model.device
    rng = torch.Generator(device).manual_seed(0)
    ids = torch.randint(objective.model.config.vocab_size, (rows, length), generator=rng, device=device)
    seconds = dict.fromkeys((False, True), math.inf)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for is_on in (False, True) * TRIES:  # in turns, so that both are disturbed alike
            with use_deterministic_algorithms(is_on):
                seconds[is_on] = min(seconds[is_on], _time_passes(objective, ids))
    more = seconds[True] / seconds[False] - 1
    return (
        f"deterministic: forward and backward of {rows} rows take {1e3 * seconds[True]:.1f} ms, and "
        f"{1e3 * seconds[False]:.1f} ms with train.deterministic=false ({more:+.0%}); not compiled"
    )


def _time_passes(objective: Objective, ids: Tensor) -> float:
    """Returns the seconds of a forward and a backward pass."""
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    began = time.perf_counter()
    torch.autograd.grad(objective(ids, ids), parameters)
    if ids.is_cuda:
        torch.cuda.synchronize(ids.device)
    return time.perf_counter() - began
