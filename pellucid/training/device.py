"""The device and the number type that a run computes with."""

import resource

import torch

from pellucid.errors import UsageError


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
