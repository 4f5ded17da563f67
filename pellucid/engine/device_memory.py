"""A device and its memory: whether it can be used, what of it is free, and a refusal of what does not fit."""

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.dtypes import check_dtype
from pellucid.base.errors import ResourceError, UsageError, quote, show
from pellucid.base.formatting import format_bytes

GROUP_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the controllers of a line of /proc/self/cgroup (none in v2): the files with the limit and what is used,
and the row of memory.stat with what could be given back."""
MALLOC_TRIM, MALLOC_MMAP = -1, -3
"""Parameters of glibc's `mallopt`: bytes of free memory that it keeps, and of the smallest block that is
mapped by itself."""
KEPT_BYTES = 1 << 30

if TYPE_CHECKING:
    import torch


def check_engine(device: Any, dtype: Any) -> tuple[str, str]:
    """Returns the names of a device and a dtype, if they can be used here."""
    if not isinstance(device, str) and type(device).__name__ != "device":
        raise UsageError(f'device must be a name such as "cpu" or "cuda", not {show(device)}.')
    name = check_dtype(dtype)
    if str(device) != "cpu":  # torch is not needed to know that one
        resolve_device(str(device))
    return str(device), name


def resolve_device(name: str) -> "torch.device":
    """Returns the device of that name, if it can be used here."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"the device {name!r} cannot be used here: {quote(error)}.") from None
    return device


def get_device_memory(device: "torch.device | str" = "cpu") -> int:
    """Returns the bytes of memory of a device; for a CPU, those of the host."""
    if _is_cuda(device):
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def get_free_memory(device: "torch.device | str" = "cpu") -> int:
    """Returns the bytes of memory that can be allocated now, of a host within the limits of this process's
    control groups; all of a host that does not say."""
    if _is_cuda(device):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = get_device_memory(device)
    return min([free, *list_group_rooms()])


def check_memory(needed: int, what: str, remedy: str, *devices: "torch.device | str") -> None:
    """Raises a `ResourceError` where a device has fewer bytes free than are needed."""
    for device in devices:
        if needed > (free := get_free_memory(device)):
            raise ResourceError(
                f"{what} need {format_bytes(needed)}, and {format_bytes(free)} are free: {remedy}."
            )


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next step. By default it gives large blocks back to the
    system, which clears each of their pages again when the next step touches it. Other libraries than glibc
    are left as they are."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(MALLOC_TRIM, KEPT_BYTES)
        mallopt(MALLOC_MMAP, KEPT_BYTES)


def list_group_rooms(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Returns the bytes that each limit of the control groups (v1 or v2) around this process leaves; none
    where there is no limit."""
    try:
        lines = [line.split(":", 2) for line in proc.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return []
    rooms = list[int | None]()
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers in GROUP_FILES:
            base, group = root / controllers, root / controllers / path.lstrip("/")
            folders = [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
            rooms += [_read_room(folder, *GROUP_FILES[controllers]) for folder in folders]
    return [room for room in rooms if room is not None]


def _read_room(folder: Path, limit: str, used: str, cached: str) -> int | None:
    """Returns the bytes that the limit of one group leaves, its cache of files aside; None without one."""
    try:
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(most - taken + int(stat.get(cached, 0)), 0)
    except (OSError, ValueError):  # "max", or no such file
        return None


def _is_cuda(device: "torch.device | str") -> bool:
    return str(device).startswith("cuda")
