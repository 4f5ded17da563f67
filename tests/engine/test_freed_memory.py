"""Freed memory is kept, so that no page is cleared again for what is computed next."""

import platform
import resource

import torch

from pellucid.engine.freed_memory import keep_freed_memory


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
