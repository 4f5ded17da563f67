"""What a device has, what of it is free, and freed memory that is used again."""

import platform
import resource
from pathlib import Path

import pytest
import torch

from pellucid.base.errors import ResourceError
from pellucid.engine.device_memory import (
    check_memory,
    get_device_memory,
    get_free_memory,
    keep_freed_memory,
    list_group_rooms,
)


def test_free_memory_is_a_part_of_the_host_s() -> None:
    assert 0 < get_free_memory() <= get_device_memory()


def test_what_does_not_fit_is_refused() -> None:
    check_memory(1, "a byte", "nothing", "cpu")
    with pytest.raises(ResourceError, match="use less"):
        check_memory(2**60, "all of it", "use less", "cpu")


@pytest.mark.parametrize(
    ("version", "limit", "used", "cached"),
    [
        ("0::/a/b", "memory.max", "memory.current", "inactive_file"),
        ("5:memory:/a/b", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_groups_leave_what_their_limits_do_without_the_files_that_they_cache(
    tmp_path: Path, version: str, limit: str, used: str, cached: str
) -> None:
    proc, base = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text(f"1:cpu:/a\n{version}\n")
    group = (base / "memory" if "memory" in version else base) / "a" / "b"
    group.mkdir(parents=True)
    assert list_group_rooms(proc, base) == list_group_rooms(tmp_path / "absent", base) == []
    for folder, most in ((group, "max"), (group.parent, "5000")):
        (folder / limit).write_text(f"{most}\n")
        (folder / used).write_text("4000\n")
        (folder / "memory.stat").write_text(f"anon 1\n{cached} 300\n")
    assert list_group_rooms(proc, base) == [1300]


def test_freed_memory_is_used_again_without_new_pages() -> None:
    """Arrays of 40 MiB, which glibc gives back to the system by default; kept ones take new memory some
    times, until a freed block has room for the alignment as well."""
    keep_freed_memory()
    count, times = 10 << 20, 32
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.empty(count).fill_(1.0)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    is_glibc = platform.libc_ver()[0] == "glibc"  # others keep their own way
    assert not is_glibc or faults < times * count * 4 // resource.getpagesize() // 2
