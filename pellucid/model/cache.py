"""The KV cache: each layer's keys (already turned) and values of the tokens read so far.

Its room is taken once, and the token at position p of a row stands in slot p, so rows of different lengths
share a batch: what lies beyond a row's length is hidden by the mask and written over later. A step writes
its slots and reads the first `reach` of them. With `stride` 1 the reach follows the longest row; with the
whole capacity it never changes, which is what compiled code and CUDA graphs need.

Where the mask forgets, so does the cache: of `first` positions that stay seen and the `last` ones it keeps a
ring, in which position p ≥ first stands in slot first + (p − first) mod last.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.errors import UsageError
from pellucid.model import attentions
from pellucid.parts.masks import Kept


class Plan(NamedTuple):
    """One call's places in the cache, the same in every layer.

    `queries` [T] or [B T] are the positions of the new tokens, `slots` alike where they are kept; `keys` [S]
    or [B S] the positions of what is read, which is the first `reach` slots. Where `beside` holds, the new
    tokens are read beside the slots, for some of them overwrite what others still see. `real` [B T] is false
    for what only fills up a row.
    """

    queries: Tensor
    slots: Tensor
    keys: Tensor
    reach: int
    beside: bool = False
    real: Tensor | None = None


class LayerCache(ABC):
    """What one layer keeps. The first axis of each of its `buffers` is the batch."""

    buffers: list[Tensor]
    cuttable = True
    """Whether a row can be cut back to what it was."""

    @abstractmethod
    def update(self, k: Tensor, v: Tensor, plan: Plan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keep the new [B K T D], and give the keys and values [B K S D] that the call looks at."""

    def clear(self, rows: Tensor) -> None:  # noqa: B027
        """The rows [B] that are true hold nothing from here on; slots are cleared by what hides them."""


class SlotLayer(LayerCache):
    """Keys and values in slots, the third axis of every buffer."""

    @abstractmethod
    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Put the new [B K T D] into the slots [T] or [B T]."""

    @abstractmethod
    def read(self, reach: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [B K S D] of the first slots."""

    def update(self, k: Tensor, v: Tensor, plan: Plan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if not plan.beside:
            self.write(k, v, plan.slots)
            return self.read(plan.reach, dtype)
        old_k, old_v = self.read(plan.reach, dtype)
        both = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        self.write(k, v, plan.slots)
        return both


class FullLayer(SlotLayer):
    """Keys and values as they are, in the cache's type."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.buffers = [torch.zeros(shape, dtype=dtype, device=device) for _ in "kv"]

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        put(self.buffers[0], k, slots)
        put(self.buffers[1], v, slots)

    def read(self, reach: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        k, v = self.buffers
        return k[:, :, :reach].to(dtype), v[:, :, :reach].to(dtype)


class Int8Layer(SlotLayer):
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
            raise UsageError(
                f"a cache of {capacity} tokens: the context has room for 1 to {config.context_length}."
            )
        if stride < 1:
            raise UsageError(f"a cache's reach grows by 1 slot or more at a time, not {stride}.")
        if config.mask.bidirectional_prefix == math.inf:
            raise UsageError(
                f"with the mask {config.mask.kind!r} a token changes what came before it, so nothing can be "
                "kept: run such a model without a cache."
            )
        self.capacity, self.stride = capacity, stride
        kept = config.mask.kept
        self.ring = kept if kept and sum(kept) < capacity else None
        self.bidirectional_prefix, self.far = config.mask.bidirectional_prefix, 2 * config.context_length
        slots = sum(self.ring) + 1 if self.ring else capacity  # the last of a ring takes what is not kept
        self.layers = [attentions.layer(config, batch, slots, dtype, device) for _ in range(config.n_layer)]
        if stride == capacity and self.layers[0].buffers[0].is_cuda:
            for buffer in (buffer for layer in self.layers for buffer in layer.buffers):
                torch._dynamo.mark_static_address(buffer)  # a CUDA graph may write where it was recorded
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self.known = [0] * batch
        """The lengths, as far as they can be told without asking the device."""
        self.longest, self.uniform = 0, True
        self.reach = min(stride, capacity)
        self.counts: Tensor | None = None

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def exact(self) -> bool:
        """Whether what is read ends with the newest token, in every row, and begins with the first."""
        return self.stride == 1 and self.uniform and self.ring is None

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for layer in self.layers for buffer in layer.buffers)

    def plan(self, count: int) -> Plan:
        """Where the next tokens go and what they look at; [T] where all rows are equally long."""
        ahead = torch.arange(count, device=self.lengths.device)
        real = None if self.counts is None else ahead < self.counts[:, None]
        start = self.lengths[:1] if self.uniform and real is None else self.lengths[:, None]
        queries = start + ahead
        if self.ring is None:
            keys = torch.arange(self.reach, device=ahead.device)
            return Plan(queries, queries, keys, self.reach, real=real)
        added = count if self.counts is None else self.counts[:, None]
        slots = self._ring_slots(self.ring, queries, start + added, real)
        reach = sum(self.ring)
        if count == 1:  # it overwrites what it cannot see
            keys = self._ring_keys(self.ring, start + added)
            return Plan(queries, slots, keys, reach, real=real)
        before = self._ring_keys(self.ring, start)
        keys = torch.cat((before.expand(*queries.shape[:-1], -1), queries), -1)
        return Plan(queries, slots, keys, reach, beside=True, real=real)

    def _ring_slots(self, ring: Kept, positions: Tensor, end: Tensor, real: Tensor | None) -> Tensor:
        """The slots of these positions; what does not stay until the end goes to the spare one."""
        first, last = ring
        slots = torch.where(positions < first, positions, first + (positions - first) % last)
        stays = (positions < first) | (positions >= end - last)
        return torch.where(stays if real is None else stays & real, slots, first + last)

    def _ring_keys(self, ring: Kept, lengths: Tensor) -> Tensor:
        """The position that each slot holds when a row has these lengths [… 1]; far ahead where none."""
        first, last = ring
        slots = torch.arange(first + last, device=lengths.device)
        newest = lengths - 1
        held = torch.where(slots < first, slots, newest - (newest - slots) % last)
        there = (held < lengths) & ((slots < first) | (held >= first))
        return torch.where(there, held, self.far)

    def reserve(self, count: int, counts: list[int] | None = None) -> None:
        """Make sure of room for so many more tokens, and let the next step see that far.

        `counts` says how many of them are real, row by row.
        """
        needed = self.longest + count
        if needed > self.capacity:
            raise UsageError(
                f"{needed} tokens do not fit this cache of {self.capacity}; crop it, or make a larger one."
            )
        if begun := [length for length in self.known if 0 < length < self.bidirectional_prefix]:
            raise UsageError(
                f"the mask is bidirectional over the first {self.bidirectional_prefix} tokens, and of a row "
                f"only {begun[0]} were read: read the first {self.bidirectional_prefix} in one call."
            )
        self.reach = min(-(-needed // self.stride) * self.stride, self.capacity)
        self.counts = None if counts is None else torch.tensor(counts, device=self.lengths.device)

    def advance(self, counts: int | list[int]) -> None:
        """So many new tokens of each row are real and stay."""
        if isinstance(counts, int):
            self.lengths += counts
            self.longest += counts
            self.known = [length + counts for length in self.known]
        else:
            self._set(self.lengths + torch.tensor(counts, device=self.lengths.device))

    def crop(self, length: int | list[int]) -> None:
        """Forget the tokens from these positions on: roll back."""
        wanted = torch.tensor(length, device=self.lengths.device).expand(self.batch)
        if int(wanted.min()) < 0:
            raise UsageError(f"a cache can be cropped to 0 tokens or more, not {length}.")
        shorter = (wanted < self.lengths) & (wanted > 0)
        room = sum(self.ring) if self.ring else self.capacity if self.layers[0].cuttable else 0
        if bool((shorter & (self.lengths > room)).any()):
            raise UsageError(
                "this cache no longer holds all that it has read, so it cannot be cropped to a part of it: "
                "crop to 0 and read again."
            )
        for layer in self.layers:
            layer.clear(wanted == 0)
        self._set(torch.minimum(self.lengths, wanted))

    def reorder(self, rows: Tensor | list[int]) -> None:
        """Row i continues what row rows[i] was: beams that live on, or rows that are dropped."""
        index = torch.as_tensor(rows, device=self.lengths.device)
        for layer in self.layers:
            layer.buffers = [buffer[index] for buffer in layer.buffers]
        self._set(self.lengths[index])

    def _set(self, lengths: Tensor) -> None:
        self.lengths = lengths
        self.known = lengths.tolist()
        self.longest, self.uniform = max(self.known), len(set(self.known)) == 1
