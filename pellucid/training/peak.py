"""The peak of this machine: FLOP/s of its fastest matrix product, and with how many threads."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from functools import cache

import torch

from pellucid.format import pluralize
from pellucid.training import determinism

SECONDS = 0.25
"""Seconds of measuring; the fastest product counts, since others may have been disturbed."""
LONG_ENOUGH = 0.01
"""Seconds of one product from which on larger ones are not faster."""
LARGEST = 8192
TRIES = 4
CLEARLY = 1.25
"""Fewer threads are chosen only where they are faster by this factor."""


def thread_counts(device: str) -> list[int]:
    """Returns the numbers of threads to try: torch's own choice first, half of it, and one.

    Where other programs use the cores, threads wait for each other, and fewer are often much faster.
    """
    usual = torch.get_num_threads()
    return list(dict.fromkeys([usual, max(1, usual // 2), 1])) if device == "cpu" else [usual]


@contextlib.contextmanager
def using_threads(count: int) -> Iterator[None]:
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
    """Returns the FLOP/s of the fastest matrix product, two for each multiply-and-add; measured once."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    if device == "cpu" and dtype in ("bfloat16", "float16"):  # few CPUs have bfloat16 products
        return max(_measure(device, dtype, threads), _measure(device, "float32", threads))
    return _measure(device, dtype, threads)


@cache
def _measure(device: str, dtype: str, _threads: int) -> float:
    determinism.prepare()
    rng = torch.Generator(device).manual_seed(0)  # the generator of a run is not to be advanced
    with torch.no_grad():
        few = torch.ones(2, 2, device=device, dtype=getattr(torch, dtype))
        _seconds(few, few, 1)  # setting up the library may take longer than all measuring
        begun, side, best = time.perf_counter(), 256, 0.0
        while True:
            a, b = (
                torch.rand(side, side, generator=rng, device=device).to(getattr(torch, dtype))
                for _ in range(2)
            )
            seconds = _seconds(a, b, 1)
            for _ in range(TRIES):
                if time.perf_counter() - begun > SECONDS:
                    break
                seconds = min(seconds, _seconds(a, b, 2))
            best = max(best, 2 * side**3 / seconds)
            if time.perf_counter() - begun > SECONDS:
                return best
            if seconds < LONG_ENOUGH and side < LARGEST:
                side *= 2


def _seconds(a: torch.Tensor, b: torch.Tensor, times: int) -> float:
    """Returns the time of one product, of `times` in a row."""
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(a, b)
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    return (time.perf_counter() - start) / times
