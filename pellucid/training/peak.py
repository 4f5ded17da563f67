"""How fast this machine multiplies matrices: the measure for everything else that it computes."""

import time
from functools import cache

import torch

from pellucid.training import determinism

SECONDS = 0.25
"""Of measuring; the fastest product counts, since others may have been disturbed."""
LONG_ENOUGH = 0.01
"""Seconds that one product takes: larger ones would tell no more."""
LARGEST = 8192
TRIES = 4


def peak(device: str | None = None, dtype: str = "float32") -> float:
    """Operations per second of the best matrix product, two for each multiply-and-add; measured once."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    if device == "cpu" and dtype in ("bfloat16", "float16"):  # which few processors multiply by themselves
        return max(_measured(device, dtype, threads), _measured(device, "float32", threads))
    return _measured(device, dtype, threads)


@cache
def _measured(device: str, dtype: str, _threads: int) -> float:
    determinism.prepare()
    dice = torch.Generator(device).manual_seed(0)  # a run that goes on would miss what was drawn from its own
    with torch.no_grad():
        few = torch.ones(2, 2, device=device, dtype=getattr(torch, dtype))
        _seconds(few, few, 1)  # what the library sets up may take longer than all the rest
        begun, side, best = time.perf_counter(), 256, 0.0
        while True:
            a, b = (
                torch.rand(side, side, generator=dice, device=device).to(getattr(torch, dtype))
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
    """For one product, of several one after the other."""
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(a, b)
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    return (time.perf_counter() - start) / times
