"""Batches on the device that computes: on a GPU the next one is under way while this one is worked on."""

from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.data.loader import DataLoader
from pellucid.data.rows import Batch
from pellucid.data.shard import Ids


class Fed(NamedTuple):
    """A batch, and its ids and targets [B T] on the device."""

    batch: Batch
    ids: Tensor
    targets: Tensor


class Feed:
    """The loader's batches. Sending ahead reads none of them sooner: where the loader stands is as before."""

    def __init__(self, loader: DataLoader, device: torch.device) -> None:
        self.loader, self.device = loader, device
        self._under_way: Fed | None = None
        self._pinned: list[dict[str, Tensor]] = [{}, {}]

    def next(self) -> Fed:
        batch, sent = next(self.loader), self._under_way
        self._under_way = None
        return sent if sent and sent.batch is batch else self.sent(batch)

    def ahead(self) -> None:
        """Send the next one, while the device still works on this one."""
        if self.device.type == "cuda" and self._under_way is None:
            try:
                batch = self.loader.peek()
            except Exception:
                return  # who asks for it is told, and not the step that works on another
            self._under_way = self.sent(batch)

    def sent(self, batch: Batch) -> Fed:
        """A batch on the device."""
        # Two buffers in turn: that of the batch before is read until the figures of its step are.
        self._pinned.reverse()
        return Fed(batch, self._there("ids", batch.ids), self._there("targets", batch.targets))

    def _there(self, name: str, array: Ids) -> Tensor:
        """On the device; by way of pinned memory, from which a GPU takes it without anybody waiting."""
        if self.device.type != "cuda":
            return torch.from_numpy(array).long()
        held = self._pinned[0]
        if name not in held or held[name].shape != array.shape:
            held[name] = torch.empty(array.shape, dtype=torch.int64, pin_memory=True)
        # NumPy copies, because the GPU was seen to wait for torch's own copy longer than for anything else.
        held[name].numpy()[...] = array
        return held[name].to(self.device, non_blocking=True)
