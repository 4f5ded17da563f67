"""The environment of a run: what its bits depend on besides the recipe, since sums depend on their order."""

import platform
from collections.abc import Mapping
from typing import Any

import torch

from pellucid import __version__

WORDS = {
    "pellucid": "pellucid",
    "torch": "torch",
    "machine": "the processor",
    "cpu": "the processor's vector instructions",
    "threads": "the number of threads",
    "device": "the device",
    "libraries": "the device's libraries",
    "compiled": "compiled",
    "ranks": "the number of ranks",
    "parallel": "what ranks share",
}


def get_environment(
    compiled: str, device: torch.device | None = None, ranks: int = 1, parallel: str = "auto"
) -> dict[str, Any]:
    """Returns it as plain data, for a checkpoint. `compiled` is "yes", or "no: " and the reason."""
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    return {
        "pellucid": __version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if cuda else device.type,
        "libraries": f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if cuda else "none",
        "compiled": "yes" if compiled == "yes" else "no",
        "ranks": ranks,
        "parallel": "nothing" if ranks == 1 else "rows" if parallel == "fsdp" else "batches",
    }


def compare_environments(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns one line for each difference.

    >>> compare_environments({"threads": 2, "ranks": 1}, {"threads": 4, "ranks": 1})
    ['the number of threads was 2, and is 4 now']
    """
    return [
        f"{WORDS.get(key, key)} was {before.get(key, 'unknown')}, and is {now.get(key, 'unknown')} now"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
