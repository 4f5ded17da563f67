"""The key-value cache of one layer, and the plan of a call: which slots it writes and which it reads."""

import contextlib
import copy
import math
import mmap
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

LARGE = 2**16
"""Bytes of a buffer that are taken from the system only when they are used; `torch.zeros` writes them on
several threads, which on a busy machine wait for each other for milliseconds."""


class CachePlan(NamedTuple):
    """One call's positions and slots, the same in every layer.

    `queries` [T] or [B T] are the positions of the new tokens, and `slots`, of the same shape, where their
    keys and values are written. `keys` [S] or [B S] are the positions of the keys that the call attends to:
    those of the first `visible_length` slots. If `uncommitted`, the keys of the new tokens follow them, not
    read from their slots, because some of them overwrite keys that others still attend to. `is_token` [B T]
    is false for padding.
    """

    queries: Tensor
    slots: Tensor
    keys: Tensor
    visible_length: int
    uncommitted: bool = False
    is_token: Tensor | None = None


class LayerCache(ABC):
    """What one layer keeps of the tokens so far. The first axis of each of its `buffers` is the batch."""

    buffers: list[Tensor]
    can_rewind = True
    """Whether a row can be cropped to a part of its tokens."""

    @abstractmethod
    def update(self, k: Tensor, v: Tensor, plan: CachePlan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Stores the new keys and values [B K T D], and returns those [B K S D] that the call attends to."""

    def clear(self, rows: Tensor) -> None:  # noqa: B027
        """Empties the rows where `rows` [B] is true. Slots need no clearing: the mask hides them."""

    def row(self, index: int) -> Self:
        """Returns the cache of one row, whose buffers are parts of these."""
        view = copy.copy(self)
        view.buffers = [buffer[index : index + 1] for buffer in self.buffers]
        return view

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Makes a row a copy of another one that holds `length` tokens, in place."""
        for buffer in self.buffers:
            buffer[target].copy_(buffer[source])


class SlotCache(LayerCache):
    """Keys and values in slots, the third axis of every buffer."""

    @abstractmethod
    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Writes the new keys and values [B K T D] into the slots [T] or [B T]."""

    @abstractmethod
    def read(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns keys and values [B K S D] of the first `length` slots."""

    def copy_row(self, source: int, target: int, length: int) -> None:
        for buffer in self.buffers:  # a ring of fewer slots is copied whole
            buffer[target, :, :length].copy_(buffer[source, :, :length])

    def update(self, k: Tensor, v: Tensor, plan: CachePlan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if not plan.uncommitted:
            self.write(k, v, plan.slots)
            return self.read(plan.visible_length, dtype)
        past_k, past_v = self.read(plan.visible_length, dtype)
        keys_values = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        self.write(k, v, plan.slots)
        return keys_values


class KeyValueCache(SlotCache):
    """Keys and values as floating-point numbers of the cache's type."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.buffers = [make_zeros(shape, dtype, device) for _ in "kv"]

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        write_slots(self.buffers[0], k, slots)
        write_slots(self.buffers[1], v, slots)

    def read(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        k, v = self.buffers
        return k[:, :, :length].to(dtype), v[:, :, :length].to(dtype)


class Int8Cache(SlotCache):
    """Keys and values as integers q from −127 to 127, with one scale for each token and head: x ≈ q · scale,
    scale = max|x| / 127."""

    def __init__(self, shape: tuple[int, ...], device: Any) -> None:
        integers = [make_zeros(shape, torch.int8, device) for _ in "kv"]
        self.buffers = integers + [make_zeros((*shape[:-1], 1), torch.float32, device) for _ in "kv"]

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        for x, integers, scales in zip(
            (k.float(), v.float()), self.buffers[:2], self.buffers[2:], strict=True
        ):
            scale = x.abs().amax(-1, keepdim=True) / 127
            write_slots(scales, scale, slots)
            write_slots(integers, torch.round(x / scale.clamp_min(1e-30)), slots)

    def read(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        k, v, k_scale, v_scale = (buffer[:, :, :length] for buffer in self.buffers)
        return (k * k_scale).to(dtype), (v * v_scale).to(dtype)


def make_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    """Returns zeros. Large ones on a CPU are pages that the system gives when they are first written, so that
    slots which are not used take neither memory nor time; `torch.zeros` writes every byte."""
    size, is_on_cpu = math.prod(shape) * dtype.itemsize, torch.empty(0, device=device).device.type == "cpu"
    if is_on_cpu and size >= LARGE and hasattr(mmap, "MAP_PRIVATE"):
        with contextlib.suppress(OSError):  # there is not enough: torch says so
            pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return torch.frombuffer(pages, dtype=dtype).view(shape)
    return torch.zeros(shape, dtype=dtype, device=device)


def write_slots(buffer: Tensor, new: Tensor, slots: Tensor) -> None:
    """buffer[b, :, slots[b, t]] = new[b, :, t]; slots [T] are the same for every row."""
    new = new.detach().to(buffer.dtype)  # no gradient flows into the cache
    if slots.ndim == 1:
        buffer.index_copy_(2, slots, new)
    else:
        rows = torch.arange(len(new), device=new.device)[:, None]
        buffer[rows, :, slots] = new.transpose(1, 2)
