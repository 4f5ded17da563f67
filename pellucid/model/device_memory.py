"""The memory of a device: all of it, and what is free."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def get_device_memory(device: "torch.device | str" = "cpu") -> int:
    """Returns the bytes of memory of a device; for a CPU, those of the host."""
    if _is_cuda(device):
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def get_free_memory(device: "torch.device | str" = "cpu") -> int:
    """Returns the bytes of memory that can be allocated now; all of a host that does not say."""
    if _is_cuda(device):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return get_device_memory(device)


def _is_cuda(device: "torch.device | str") -> bool:
    return str(device).startswith("cuda")
