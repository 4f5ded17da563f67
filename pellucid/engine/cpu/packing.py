"""Packing of quantized weights into the blocks of model.h, once for each weight, in large pages.

A step reads every weight once, so pages of 4 kB cost a translation for each 4 kB read; in pages of 2 MB one
thread reads a third faster.
"""

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Iterable

import torch
from torch import Tensor

from pellucid.engine.quantized_tensor import QuantizedTensor

OFFSETS = {4: 8, 5: 16, 8: 128}
"""What is added to symmetric integers so that none is negative."""
LARGE_PAGE = 2**21

_PACKED: weakref.WeakKeyDictionary[QuantizedTensor, tuple[tuple[tuple[int, int], ...], Tensor]] = (
    weakref.WeakKeyDictionary()
)
"""The packed form of each weight, with the addresses and versions of the parts that it was made of."""


def block_bytes(weight: QuantizedTensor) -> int:
    """Returns the bytes of a block of 16 rows and 32 inputs."""
    return (256 if weight.bits == 4 else 512) + (32 if weight.minimums is None else 64)


def find_packed(weight: QuantizedTensor) -> Tensor:
    """Returns the packed form of a weight that was packed."""
    return _PACKED[weight][1]


def pack(weights: Iterable[QuantizedTensor], library: ctypes.CDLL) -> None:
    """Packs the weights that are not packed yet, one after another in one piece of memory."""
    left = [weight for weight in weights if not _is_packed(weight)]
    sizes = [_count_bytes(weight) for weight in left]
    memory, at = make_large_pages(sum(sizes)), 0
    for weight, size in zip(left, sizes, strict=True):
        packed = memory[at : at + size]
        write_packed(weight, packed, library)
        _PACKED[weight], at = (_identify(weight), packed), at + size


def are_packed(weights: Iterable[QuantizedTensor]) -> bool:
    """Returns whether the packed forms of all weights are of their numbers as they are now."""
    return all(map(_is_packed, weights))


def _is_packed(weight: QuantizedTensor) -> bool:
    return _PACKED.get(weight, (None, None))[0] == _identify(weight)


def make_large_pages(size: int) -> Tensor:
    """Returns memory of that many bytes, in pages of 2 MB where the system has them."""
    if size >= LARGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # there is not enough: torch says so
            pages = mmap.mmap(-1, size + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(OSError):  # a system without such pages
                pages.madvise(mmap.MADV_HUGEPAGE)
            memory = torch.frombuffer(pages, dtype=torch.uint8)
            start = -memory.data_ptr() % LARGE_PAGE
            return memory[start : start + size]
    return torch.empty(size, dtype=torch.uint8)


def _identify(weight: QuantizedTensor) -> tuple[tuple[int, int], ...]:
    parts = (weight.integers, weight.scales, weight.minimums)
    return tuple((part.data_ptr(), part._version) for part in parts if part is not None)


def _count_bytes(weight: QuantizedTensor) -> int:
    out, width = weight.shape
    return -(-out // 16) * -(-width // 32) * block_bytes(weight)


def write_packed(weight: QuantizedTensor, packed: Tensor, library: ctypes.CDLL) -> None:
    """Writes the blocks of a weight into memory of their size."""
    parts = (weight.integers, weight.scales, weight.minimums)
    held = [None if part is None else part.contiguous() for part in parts]
    bits, offset = (4, 8) if weight.bits == 4 else (8, OFFSETS[weight.bits])
    sizes = (*weight.shape, weight.group, bits, offset if weight.minimums is None else 0)
    library.pellucid_pack(
        *(None if part is None else ctypes.c_void_p(part.data_ptr()) for part in held),
        *map(ctypes.c_int32, sizes),
        ctypes.c_void_p(packed.data_ptr()),
    )
