"""Batches on the device that computes: on a GPU the next one is copied while this one is trained on."""

from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.data.loader import DataLoader
from pellucid.data.rows import Batch
from pellucid.data.shard import Ids


class DeviceBatch(NamedTuple):
    """A batch of the loader, and its ids, targets and segments [B T] on the device."""

    batch: Batch
    ids: Tensor
    targets: Tensor
    segments: Tensor | None = None
    """None where no row holds several documents that must not see each other."""


class Prefetcher:
    """Copies the loader's batches to the device. Prefetching does not advance the loader's position."""

    def __init__(self, loader: DataLoader, device: torch.device) -> None:
        self.loader, self.device = loader, device
        self._prefetched: DeviceBatch | None = None
        self._pinned: list[dict[str, Tensor]] = [{}, {}]

    def next(self) -> DeviceBatch:
        """Returns the loader's next batch on the device."""
        batch, prefetched = next(self.loader), self._prefetched
        self._prefetched = None
        return prefetched if prefetched and prefetched.batch is batch else self.to_device(batch)

    def prefetch(self) -> None:
        """Starts to copy the next batch to a GPU, while the GPU still works on this one."""
        if self.device.type == "cuda" and self._prefetched is None:
            try:
                batch = self.loader.peek()
            except Exception:
                return  # `next` raises it: the step under way does not depend on that batch
            self._prefetched = self.to_device(batch)

    def to_device(self, batch: Batch) -> DeviceBatch:
        # Two buffers in turn: that of the previous batch is read until the figures of its step are.
        self._pinned.reverse()
        segments = None if batch.segments is None else self._copy("segments", batch.segments)
        ids, targets = self._copy("ids", batch.ids), self._copy("targets", batch.targets)
        return DeviceBatch(batch, ids, targets, segments)

    def _copy(self, name: str, array: Ids) -> Tensor:
        """Returns an array on the device; through pinned memory, from which a GPU copies asynchronously."""
        if self.device.type != "cuda":
            return torch.from_numpy(array).long()
        held = self._pinned[0]
        if name not in held or held[name].shape != array.shape:
            held[name] = torch.empty(array.shape, dtype=torch.int64, pin_memory=True)
        # NumPy copies, because the GPU was seen to wait for torch's own copy longer than for anything else.
        held[name].numpy()[...] = array
        return held[name].to(self.device, non_blocking=True)
