"""The KV cache: each layer's keys (already turned) and values of the tokens read so far.

Its room is taken once, and the token at position p of a row stands in slot p, so rows of different lengths
share a batch: what lies beyond a row's length is hidden by the mask and written over later. A step writes
its slots and reads the first `reach` of them. With `stride` 1 the reach follows the longest row; with the
whole capacity it never changes, which is what compiled code and CUDA graphs need.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.errors import AskedWrongly


class LayerCache(ABC):
    """One layer's slots. The first axis of each of its `buffers` is the batch, the third the slots."""

    buffers: list[Tensor]

    @abstractmethod
    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Put the new [B K T D] into the slots [T] or [B T]."""

    @abstractmethod
    def read(self, reach: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [B K S D] of the first slots."""


class FullLayer(LayerCache):
    """Keys and values as they are, in the cache's type."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.buffers = [torch.zeros(shape, dtype=dtype, device=device) for _ in "kv"]

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        put(self.buffers[0], k, slots)
        put(self.buffers[1], v, slots)

    def read(self, reach: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        k, v = self.buffers
        return k[:, :, :reach].to(dtype), v[:, :, :reach].to(dtype)


class Int8Layer(LayerCache):
    """Whole numbers from −127 to 127, and for each token and head the size of one of them: x ≈ q · scale
    with scale = max|x| / 127."""

    def __init__(self, shape: tuple[int, ...], device: Any) -> None:
        numbers = [torch.zeros(shape, dtype=torch.int8, device=device) for _ in "kv"]
        self.buffers = numbers + [torch.zeros((*shape[:-1], 1), device=device) for _ in "kv"]

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        for x, q, scale in zip((k.float(), v.float()), self.buffers[:2], self.buffers[2:], strict=True):
            size = x.abs().amax(-1, keepdim=True) / 127
            put(scale, size, slots)
            put(q, torch.round(x / size.clamp_min(1e-30)), slots)

    def read(self, reach: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        k, v, k_scale, v_scale = (buffer[:, :, :reach] for buffer in self.buffers)
        return (k * k_scale).to(dtype), (v * v_scale).to(dtype)


def put(buffer: Tensor, new: Tensor, slots: Tensor) -> None:
    """buffer[b, :, slots[b, t]] = new[b, :, t]; with slots [T] the same for every row."""
    new = new.detach().to(buffer.dtype)  # what is kept is past: no gradient flows into it
    if slots.ndim == 1:
        buffer.index_copy_(2, slots, new)
    else:
        rows = torch.arange(len(new), device=new.device)[:, None]
        buffer[rows, :, slots] = new.transpose(1, 2)


class Cache:
    """All layers' slots, and how many of each row are filled."""

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: Any = "cpu",
        stride: int = 1,
    ) -> None:
        if not 0 < capacity <= config.context_length:
            raise AskedWrongly(
                f"a cache of {capacity} tokens: the context has room for 1 to {config.context_length}."
            )
        if stride < 1:
            raise AskedWrongly(f"a cache's reach grows by 1 slot or more at a time, not {stride}.")
        if config.mask.looks_ahead:
            raise AskedWrongly(
                f"with the mask {config.mask.kind!r} a token changes what came before it, so nothing can be "
                "kept: run such a model without a cache."
            )
        self.capacity, self.stride = capacity, stride
        shape = (batch, config.n_kv_head, capacity, config.d_head)
        self.layers: list[LayerCache] = [
            Int8Layer(shape, device) if dtype == torch.int8 else FullLayer(shape, dtype, device)
            for _ in range(config.n_layer)
        ]
        if stride == capacity and self.layers[0].buffers[0].is_cuda:
            for buffer in (buffer for layer in self.layers for buffer in layer.buffers):
                torch._dynamo.mark_static_address(buffer)  # a CUDA graph may write where it was recorded
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self.longest, self.uniform = 0, True
        self.reach = min(stride, capacity)

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def exact(self) -> bool:
        """Whether the reach ends with the newest token, in every row."""
        return self.stride == 1 and self.uniform

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for layer in self.layers for buffer in layer.buffers)

    def slots(self, count: int) -> Tensor:
        """Where the next tokens go: [T] where all rows are equally long, else [B T]."""
        ahead = torch.arange(count, device=self.lengths.device)
        return self.lengths[0] + ahead if self.uniform else self.lengths[:, None] + ahead

    def reserve(self, count: int) -> None:
        """Make sure of room for so many more tokens, and let the next step see that far."""
        needed = self.longest + count
        if needed > self.capacity:
            raise AskedWrongly(
                f"{needed} tokens do not fit this cache of {self.capacity}; crop it, or make a larger one."
            )
        self.reach = min(-(-needed // self.stride) * self.stride, self.capacity)

    def advance(self, counts: int | list[int]) -> None:
        """So many new tokens of each row are real and stay."""
        if isinstance(counts, int):
            self.lengths += counts
            self.longest += counts
        else:
            self._set(self.lengths + torch.tensor(counts, device=self.lengths.device))

    def crop(self, length: int | list[int]) -> None:
        """Forget the tokens from these positions on: roll back."""
        wanted = torch.tensor(length, device=self.lengths.device)
        if int(wanted.min()) < 0:
            raise AskedWrongly(f"a cache can be cropped to 0 tokens or more, not {length}.")
        self._set(torch.minimum(self.lengths, wanted))

    def reorder(self, rows: Tensor | list[int]) -> None:
        """Row i continues what row rows[i] was: beams that live on, or rows that are dropped."""
        index = torch.as_tensor(rows, device=self.lengths.device)
        for layer in self.layers:
            layer.buffers = [buffer[index] for buffer in layer.buffers]
        self._set(self.lengths[index])

    def _set(self, lengths: Tensor) -> None:
        self.lengths = lengths
        known = lengths.tolist()
        self.longest, self.uniform = max(known), len(set(known)) == 1
