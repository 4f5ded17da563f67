"""The speed of this machine: the peak of its matrix products, the speed of training steps, and with how many
threads."""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

import torch

from pellucid.base.formatting import pluralize
from pellucid.config import ModelConfig
from pellucid.config.cost import count_flops_per_token
from pellucid.engine.initializations import initialize
from pellucid.engine.transformer import Transformer
from pellucid.parts.optimizers import AdamW
from pellucid.training.device import configure_torch, resolve_device, resolve_dtype
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.objective import Objective
from pellucid.training.optimizers import make_optimizer, update
from pellucid.training.plan import UTILIZATION, Plan
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.sections import TrainSettings

PEAK_SECONDS = 0.25
"""Seconds of measuring; the fastest product counts, since others may have been disturbed."""
LONG_ENOUGH = 0.01
"""Seconds of one product from which on larger ones are not faster."""
LARGEST = 8192
TRIES = 4
MUCH_FASTER = 1.5
"""The ratio of two types' products above which the slower one is mentioned."""
CLEARLY = 1.25
"""Fewer threads are chosen only where they are faster by this factor."""
SPEED_SECONDS, SPEED_STEPS = 2.0, 4
"""Seconds of measuring at most, and timed steps at most."""
TOLERANCE = 1.25
"""A utilization that differs from the assumed one by more than this factor is planned with."""
_peaks: dict[tuple[str, str], float] = {}
"""FLOP/s of the fastest product that this process has measured, by device and type."""


# ---- the peak of matrix products


def thread_counts(device: str) -> list[int]:
    """Returns the numbers of threads to try: torch's own choice first, half of it, and one.

    Where other programs use the cores, threads wait for each other, and fewer are often much faster.
    """
    usual = torch.get_num_threads()
    return list(dict.fromkeys([usual, max(1, usual // 2), 1])) if device == "cpu" else [usual]


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Lets torch compute with `count` threads in this block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fastest(speeds: Mapping[int, float]) -> int:
    """Returns the number of threads to use: the first, unless another is clearly faster.

    >>> fastest({2: 90e9, 1: 95e9}), fastest({2: 1e9, 1: 93e9})
    (2, 1)
    """
    usual, best = next(iter(speeds)), max(speeds, key=lambda count: speeds[count])
    return best if speeds[best] > CLEARLY * speeds[usual] else usual


def describe_threads(speeds: Mapping[int, float], count: int, remedy: str = "") -> str:
    """Returns why a run uses fewer threads than usual, or what would help, or that the machine is busy; empty
    otherwise."""
    load, cores, usual = load_average(), os.cpu_count() or 1, next(iter(speeds))
    if count != usual:
        why = "machine is busy: measured" if load >= cores / 2 else "measured"
        remedy = remedy or f"using {pluralize(count, 'thread')}"
        figures = (
            f"{speeds[usual] / 1e9:.3g} GFLOP/s with {usual} threads, {speeds[count] / 1e9:.3g} with {count}"
        )
        return f"{why} {figures}; {remedy}"
    if load >= cores:
        return (
            f"machine is busy: load average {load:.1f} on {cores} cores; training may be slower than planned"
        )
    return ""


def load_average() -> float:
    """Returns the load average of the last minute; 0 where the system has none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def measure_peak(device: str | None = None, dtype: str = "float32") -> float:
    """Returns the FLOP/s of the fastest matrix product, two for each multiply-and-add; measured once for each
    number of threads."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    peak = _measure_product(device, dtype, threads)
    if device == "cpu" and dtype in ("bfloat16", "float16"):  # few CPUs have bfloat16 products
        peak = max(peak, _measure_product(device, "float32", threads))
    _peaks[device, dtype] = max(peak, _peaks.get((device, dtype), 0.0))
    return peak


def find_peak(device: str, dtype: str) -> float:
    """Returns the peak of the machine, FLOP/s: the fastest product measured so far, with this number of
    threads or another. On a busy machine one number may be a hundred times slower at that moment."""
    return max(measure_peak(device, dtype), _peaks.get((device, dtype), 0.0))


@cache
def _measure_product(device: str, dtype: str, _threads: int) -> float:
    configure_torch()
    rng = torch.Generator(device).manual_seed(0)  # the generator of a run is not to be advanced
    with torch.no_grad():
        few = torch.ones(2, 2, device=device, dtype=getattr(torch, dtype))
        _time_products(few, few, 1)  # setting up the library may take longer than all measuring
        begun, side, best = time.perf_counter(), 256, 0.0
        while True:
            a, b = (
                torch.rand(side, side, generator=rng, device=device).to(getattr(torch, dtype))
                for _ in range(2)
            )
            seconds = _time_products(a, b, 1)
            for _ in range(TRIES):
                if time.perf_counter() - begun > PEAK_SECONDS:
                    break
                seconds = min(seconds, _time_products(a, b, 2))
            best = max(best, 2 * side**3 / seconds)
            if time.perf_counter() - begun > PEAK_SECONDS:
                return best
            if seconds < LONG_ENOUGH and side < LARGEST:
                side *= 2


def _time_products(a: torch.Tensor, b: torch.Tensor, times: int) -> float:
    """Returns the time of one product, of `times` in a row."""
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(a, b)
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    return (time.perf_counter() - start) / times


# ---- the speed of training steps


def measure_speed(
    config: ModelConfig,
    rows: int,
    length: int,
    device: str,
    dtype: str,
    peak: float,
    seconds: float = SPEED_SECONDS,
) -> float | None:
    """Returns the FLOP/s of training steps; None where one step would take too long to try, and on a GPU:
    there the run is compiled, and a few steps only measure how long their kernels take to load.

    Where all rows or layers take too long, a part of them is measured: the speed is about the same. The time
    of a step is guessed from the machine's `peak`.
    """
    if device != "cpu":
        return None
    flops = count_flops_per_token(config, length) * length
    expected = seconds / (SPEED_STEPS + 1) * peak * UTILIZATION
    rows = max(1, min(rows, int(expected / flops)))
    if flops > expected and config.n_layer > 1:
        config = replace(config, n_layer=max(1, int(config.n_layer * expected / flops)))
        flops = count_flops_per_token(config, length) * length
    if flops > (SPEED_STEPS + 1) * expected:
        return None
    configure_torch()
    place = torch.device(device)
    with torch.random.fork_rng([place] if place.type == "cuda" else []):
        return rows * flops / _time_step(config, rows, length, place, dtype, seconds)


def _time_step(
    config: ModelConfig, rows: int, length: int, device: torch.device, dtype: str, most: float
) -> float:
    """Returns the median time of a step: forward, backward and update."""
    wide = torch.float64 if dtype == "float64" else torch.float32
    model = initialize(Transformer.empty(config, device, wide)).train()
    objective = Objective(model, TrainSettings(), dtype)
    optimizer = make_optimizer(dict(model.named_parameters()), AdamW())
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (rows, length + 1), generator=rng).to(device)
    begun, times = time.perf_counter(), list[float]()
    while True:
        start = time.perf_counter()
        loss = objective(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        update(optimizer, loss.detach().isfinite())
        optimizer.zero_grad()
        loss.item()  # waits for the device
        now = time.perf_counter()
        times.append(now - start)
        if len(times) > SPEED_STEPS or now - begun + times[-1] > most:
            # The first step also sets up what the libraries need: it counts only where it is the only one.
            return statistics.median(times[1:] or times)


# ---- the machine of a run


class Machine:
    """Chooses the number of threads, first by matrix products alone and then by training steps."""

    def __init__(self, recipe: Recipe, device: str, may_choose: bool, seconds: float) -> None:
        self.device, self.seconds, self.message = device, seconds, ""
        self.dtype = resolve_dtype(torch.device(device), recipe.train.dtype, recipe.train.weights)
        threads = recipe.train.threads
        self.counts = [threads] if threads else thread_counts(device)[: None if may_choose else 1]
        self.peaks = {count: self._measure_peak(count) for count in self.counts}
        self._choose(self.peaks)

    def _choose(self, speeds: Mapping[int, float]) -> None:
        self.count = fastest(speeds)
        self.peak = max(self.peaks.values())
        if len(speeds) > 1 or not self.message:
            self.message = describe_threads(speeds, self.count)

    def _measure_peak(self, threads: int) -> float:
        with use_threads(threads):
            return measure_peak(self.device, self.dtype)

    def measure_utilization(self, plan: Plan) -> float | None:
        """Returns the fraction of the peak that training steps of a plan reach.

        None where it is about what was assumed, or where a step would take too long to try. The first call
        also chooses the number of threads.
        """
        keys, config, speeds = plan.overrides, plan.config, dict[int, float]()
        for count in self.counts:
            with use_threads(count):
                found = measure_speed(
                    config,
                    keys["data.batch_size"],
                    keys.get("model.context_length", config.context_length),
                    self.device,
                    self.dtype,
                    self.peak,
                    self.seconds / len(self.counts),
                )
            if found is None:
                return None
            speeds[count] = found
        self._choose(speeds)
        self.counts = [self.count]
        utilization = speeds[self.count] / self.peak
        return None if 1 / TOLERANCE <= utilization / UTILIZATION <= TOLERANCE else utilization


def hint_dtype(recipe: Recipe) -> list[str]:
    """Returns a line where products in bfloat16 would be much faster than the float32 of a CPU's default.

    The bits of a run follow from their type, so the user chooses it.
    """
    device, asked = resolve_device(recipe.train.device), recipe.train
    if (
        device.type != "cpu"
        or asked.dtype != "auto"
        or resolve_dtype(device, "auto", asked.weights) != "float32"
    ):
        return []
    speeds = [measure_peak(str(device), dtype) for dtype in ("float32", "bfloat16")]
    if speeds[1] < MUCH_FASTER * speeds[0]:
        return []
    wide, narrow = (f"{speed / 1e9:.0f}" for speed in speeds)
    return [f"train.dtype=bfloat16 would be faster: products at {narrow} GFLOP/s here, {wide} in float32"]


def hint_threads(recipe: Recipe, ranks: Ranks) -> list[str]:
    """Returns a line where a recipe would train faster with fewer threads.

    The bits of a run follow from their number, so the user chooses it. Measured only on a busy machine.
    """
    device = resolve_device(recipe.train.device)
    if recipe.train.threads or not ranks.is_single_process or load_average() < (os.cpu_count() or 1):
        return []
    machine = Machine(recipe, str(device), True, 0.0)
    remedy = f"train.threads={machine.count} would be faster"
    return list(filter(None, [describe_threads(machine.peaks, machine.count, remedy)]))
