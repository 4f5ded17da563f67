"""The recording of launches as one CUDA graph."""

import gc
from collections.abc import Callable
from typing import Any

import torch


def capture(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Records what `run` launches, and returns the graph and what `run` returned.

    Meanwhile no garbage is collected: the end of another graph, which may be part of a cycle, would break
    the recording off.
    """
    graph, is_collecting = torch.cuda.CUDAGraph(), gc.isenabled()
    torch.cuda.synchronize()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = run()
    finally:
        if is_collecting:
            gc.enable()
    return graph, result
