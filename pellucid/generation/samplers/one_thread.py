"""Torch on one thread, where its work is too short for several.

The threads of OpenMP spin for a while after their work, on the cores that the compiled decoder's threads use.
`torch.set_num_threads` would change the number for threads that begin meanwhile; OpenMP's own function
changes it for the thread that calls it.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch


@contextlib.contextmanager
def use_one_thread() -> Iterator[None]:
    """Runs torch's operations of the calling thread without others, where torch has OpenMP."""
    before, set_threads = torch.get_num_threads(), _find_setter()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


@cache
def _find_setter() -> Callable[[int], object]:
    """Returns the function of the OpenMP library that torch is linked with."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        with contextlib.suppress(OSError, AttributeError):
            setter: Callable[[int], object] = ctypes.CDLL(str(path)).omp_set_num_threads
            return setter
    return lambda count: None
