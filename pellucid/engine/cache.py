"""The KV cache: each layer's keys (after RoPE) and values of the tokens so far.

Memory is allocated once. The token at position p of a row is in slot p, so rows of different lengths share a
batch: slots beyond a row's length are hidden by the mask and overwritten later. A call writes its slots and
attends to the first `visible_length` of them. With `stride` 1 that length follows the longest row; with
`stride` = `capacity` it is constant, which compiled code and CUDA graphs need.

If the mask hides distant positions (a window), only those it shows are kept: the `first` positions, and a
ring buffer of the `last` ones, in which position p ≥ first is in slot first + (p − first) mod last.

Buffers and lengths change in place: a recorded CUDA graph stays valid, and the cache of one row (`row`) is a
view that shares them.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine import attentions
from pellucid.engine.layer_cache import CachePlan
from pellucid.parts.masks import VisiblePast


class Cache:
    """The caches of all layers, and the number of tokens in each row.

    A call is `reserve`, the forward pass with this cache, then `advance`: `Transformer.forward_cached`.
    """

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
                f"a cache must have a capacity from 1 to the context length {config.context_length}, "
                f"not {capacity}."
            )
        if stride < 1:
            raise UsageError(f"the stride of a cache must be 1 slot or more, not {stride}.")
        if config.mask.bidirectional_prefix == math.inf:
            raise UsageError(
                f"with the mask {config.mask.kind!r} a token changes the values of earlier ones, so they "
                "cannot be cached: run this model without a cache."
            )
        self.capacity, self.stride = capacity, stride
        visible = config.mask.visible_past
        self.ring = visible if visible and sum(visible) < capacity else None
        self.bidirectional_prefix = config.mask.bidirectional_prefix
        self.sentinel = 2 * config.context_length
        """The position of a slot that holds no token: later than every query, so that the mask hides it."""
        slots = sum(self.ring) + 1 if self.ring else capacity  # a ring's last slot takes what is not kept
        make_cache = attentions.find(config).make_cache
        self.layers = [make_cache(config, batch, slots, dtype, device) for _ in range(config.n_layer)]
        if stride == capacity and self.layers[0].buffers[0].is_cuda:
            for buffer in (buffer for layer in self.layers for buffer in layer.buffers):
                torch._dynamo.mark_static_address(buffer)  # CUDA graphs write to the recorded addresses
        self.host_lengths = np.zeros(batch, np.int64)
        """The lengths on the host, so that reading them does not wait for the device; on a CPU they are the
        same memory."""
        self.lengths = torch.from_numpy(self.host_lengths).to(device)
        self.is_uniform = True
        self.whole = self
        """The cache whose row this is: itself, unless it is a view."""
        self.visible_length = min(stride, capacity)
        self.new_lengths: Tensor | None = None
        """How many tokens of each row of the next call are not padding; None if all."""

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        return int(self.host_lengths.max())

    @property
    def can_rewind(self) -> bool:
        """Returns whether every row can be cropped to a part of its tokens, however many it has read."""
        return self.ring is None and self.layers[0].can_rewind

    def row(self, index: int) -> Self:
        """Returns the cache of one row: a view, which reads and changes this one."""
        view = copy.copy(self)
        view.layers = [layer.row(index) for layer in self.layers]
        view.lengths = self.lengths[index : index + 1]
        view.host_lengths = self.host_lengths[index : index + 1]
        view.is_uniform, view.whole = True, self
        return view

    @property
    def is_contiguous(self) -> bool:
        """Returns whether a call attends to positions 0, 1, … up to its last one, in every row.

        Where rows end in padding, the last one may be beyond the keys, unless there are none before."""
        is_full = self.new_lengths is None or self.longest == 0
        return self.stride == 1 and self.is_uniform and self.ring is None and is_full

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for layer in self.layers for buffer in layer.buffers)

    def plan(self, count: int) -> CachePlan:
        """Returns the slots and positions of the next `count` tokens; [T] if all rows have equal lengths."""
        offsets = torch.arange(count, device=self.lengths.device)
        is_token = None if self.new_lengths is None else offsets < self.new_lengths[:, None]
        start = self.lengths[:1] if self.is_uniform and is_token is None else self.lengths[:, None]
        queries = start + offsets
        if self.ring is None:
            keys = torch.arange(self.visible_length, device=offsets.device)
            return CachePlan(queries, queries, keys, self.visible_length, is_token=is_token)
        end = start + (count if self.new_lengths is None else self.new_lengths[:, None])
        slots = self._ring_slots(self.ring, queries, end, is_token)
        visible_length = sum(self.ring)
        if count == 1:  # it overwrites the one position that it does not attend to
            keys = self._ring_positions(self.ring, end)
            return CachePlan(queries, slots, keys, visible_length, is_token=is_token)
        past = self._ring_positions(self.ring, start)
        keys = torch.cat((past.expand(*queries.shape[:-1], -1), queries), -1)
        return CachePlan(queries, slots, keys, visible_length, uncommitted=True, is_token=is_token)

    def _ring_slots(
        self, ring: VisiblePast, positions: Tensor, end: Tensor, is_token: Tensor | None
    ) -> Tensor:
        """Returns the slots of these positions; those no longer visible at `end` go to the spare slot."""
        first, last = ring
        slots = torch.where(positions < first, positions, first + (positions - first) % last)
        stays = (positions < first) | (positions >= end - last)
        return torch.where(stays if is_token is None else stays & is_token, slots, first + last)

    def _ring_positions(self, ring: VisiblePast, lengths: Tensor) -> Tensor:
        """Returns the position in each slot for rows of these lengths [… 1]; the sentinel if it is empty."""
        first, last = ring
        slots = torch.arange(first + last, device=lengths.device)
        newest = lengths - 1
        positions = torch.where(slots < first, slots, newest - (newest - slots) % last)
        is_filled = (positions < lengths) & ((slots < first) | (positions >= first))
        return torch.where(is_filled, positions, self.sentinel)

    def reserve(self, count: int, new_lengths: list[int] | None = None) -> None:
        """Prepares the next call: checks that `count` more tokens fit, and makes their slots visible.

        `new_lengths` says how many of them are not padding, row by row.
        """
        needed = int((self.host_lengths + (count if new_lengths is None else np.array(new_lengths))).max())
        if needed > self.capacity:
            raise UsageError(
                f"{needed} tokens do not fit this cache of {self.capacity}; crop it, or make a larger one."
            )
        partial = [length for length in self.host_lengths.tolist() if 0 < length < self.bidirectional_prefix]
        if partial:
            raise UsageError(
                f"the mask is bidirectional over the first {self.bidirectional_prefix} tokens, and of a row "
                f"only {partial[0]} were read: read the first {self.bidirectional_prefix} in one call."
            )
        self.is_uniform = self._is_uniform()
        self.visible_length = min(-(-needed // self.stride) * self.stride, self.capacity)
        self.new_lengths = (
            None if new_lengths is None else torch.tensor(new_lengths, device=self.lengths.device)
        )

    def advance(self, counts: int | Sequence[int]) -> None:
        """Adds the numbers of new tokens, padding aside, to the lengths of the rows."""
        if isinstance(counts, int):
            if len(self.host_lengths) == 1:  # without NumPy's arithmetic of arrays, which costs a small model
                self.host_lengths[0] += counts
            else:
                self.host_lengths += counts
            if self.lengths.device.type != "cpu":
                self.lengths += counts
        else:
            self.set_lengths(self.host_lengths + np.asarray(counts))

    def advance_rows(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Adds the numbers of new tokens to the lengths of some rows, in one copy to the device."""
        self.host_lengths[np.asarray(rows, int)] += np.asarray(counts, int)
        self.set_lengths(self.host_lengths)

    def crop(self, length: int | Sequence[int]) -> None:
        """Removes the tokens at these positions and after them."""
        wanted = np.broadcast_to(length, self.host_lengths.shape)
        if wanted.min() < 0:
            raise UsageError(f"a cache can be cropped to 0 tokens or more, not {length}.")
        is_partial = (wanted < self.host_lengths) & (wanted > 0)
        rewindable = sum(self.ring) if self.ring else self.capacity if self.layers[0].can_rewind else 0
        if (is_partial & (self.host_lengths > rewindable)).any():
            raise UsageError(
                "this cache no longer holds every token that it has read, so it cannot be cropped to a part "
                "of them: crop it to 0 and read the tokens again."
            )
        is_empty = torch.tensor(wanted == 0, device=self.lengths.device)
        for layer in self.layers:
            layer.clear(is_empty)
        self.set_lengths(np.minimum(self.host_lengths, wanted))

    def copy_row(self, source: int, target: int) -> None:
        """Makes a row a copy of another, in place."""
        length = int(self.host_lengths[source])
        for layer in self.layers:
            layer.copy_row(source, target, length)
        lengths = self.host_lengths.copy()
        lengths[target] = length
        self.set_lengths(lengths)

    def reorder(self, rows: Sequence[int]) -> None:
        """Makes row i a copy of what row rows[i] was, in place, as beam search needs."""
        if len(rows) != self.batch:
            raise UsageError(f"a cache of {self.batch} rows is reordered to as many, not to {len(rows)}.")
        index = torch.as_tensor(rows, device=self.lengths.device)
        for layer in self.layers:
            for buffer in layer.buffers:
                buffer.copy_(buffer[index])
        self.set_lengths(self.host_lengths[np.asarray(rows)])

    def _is_uniform(self) -> bool:
        return bool((self.host_lengths == self.host_lengths[0]).all())

    def set_lengths(self, lengths: Any) -> None:
        """Makes these the numbers of tokens in the rows: none more than was written."""
        self.host_lengths[:] = lengths
        if self.lengths.device.type != "cpu":
            self.lengths.copy_(torch.from_numpy(self.host_lengths))
        self.is_uniform = self._is_uniform()
