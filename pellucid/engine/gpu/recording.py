"""Values that a step offers to the recordings of a call."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.gpu.buffers import Buffers
from pellucid.engine.gpu.step import DecodeStep
from pellucid.engine.layer_cache import SlotCache
from pellucid.engine.taps import tap
from pellucid.engine.transformer import Transformer


class DecodeRecorder:
    """Offers the values of a step to the recordings, under their names and in the axes of the glossary."""

    def __init__(self, module: Transformer, buffers: Buffers, rows: Sequence[tuple[Cache, int]]) -> None:
        self.module, self.config, self.buffers = module, module.config, buffers
        self.rows, self.count = rows, sum(count for _, count in rows)
        """The cache of each text, which has its new tokens, and how many these are."""

    def run(self, step: DecodeStep) -> None:
        """Runs a step kernel by kernel."""
        tap("blocks.0.resid_pre", self.buffers.x[None, : self.count].clone())
        step.run(tap=self._tap)

    def _tap(self, name: str) -> None:
        b, c = self.buffers, self.config
        path, _, last = name.rpartition(".")
        if last == "qkv":
            sizes = [c.n_head, c.n_kv_head, c.n_kv_head]
            parts = b.qkv[: self.count].split([size * c.d_head for size in sizes], -1)
            for part, value in zip("qkv", parts, strict=True):
                tap(f"{path}.{part}", self._split_heads(value))
        elif last == "z":
            self._tap_cache(path)
            tap(name, self._split_heads(self._join(b.z, b.z_planes)))
        elif last == "hidden":
            tap(name, self._join(b.hidden, b.hidden_planes)[None].clone())
        elif last == "logits":
            tap(name, b.logits[None, : self.count].clone())
        else:
            tap(name, b.x[None, : self.count].clone())

    def _tap_cache(self, path: str) -> None:
        """Offers the new keys as the cache holds them, where they are more than a product, and all keys and
        values of each text."""
        index = int(path.split(".")[1])
        if (name := self._name_keys()) is not None:
            new = [
                row.layers[index].buffers[0][:, :, self._find_places(row, count)] for row, count in self.rows
            ]
            tap(f"{path}.{name}", torch.cat(new, 2))
        for cache, _ in self.rows:
            layer = cache.layers[index]
            if cache.ring is None:
                assert isinstance(layer, SlotCache)
                keys, values = layer.read(int(cache.host_lengths[0]), torch.float32)
                tap(f"{path}.k_all", keys)
                tap(f"{path}.v_all", values)

    def _name_keys(self) -> str | None:
        if self.module.positions.cos_sin is not None:
            return "k_rot"
        return None if self.config.qk_norm.is_none else "k_normed"

    @staticmethod
    def _find_places(row: Cache, count: int) -> slice:
        """Returns where a row's newest keys are; in a ring it is one."""
        first = int(row.host_lengths[0]) - count
        place = first if row.ring is None else first % row.ring.last
        return slice(place, place + count)

    def _join(self, vector: Tensor, planes: Tensor) -> Tensor:
        """Returns what kernels hand on, [tokens channels]: of several rows, the sum of its planes."""
        return vector[:1] if self.count == 1 else planes[:, : self.count].float().sum(0)

    def _split_heads(self, x: Tensor) -> Tensor:
        """[T (heads D)] → [1 heads T D]."""
        return x.reshape(self.count, -1, self.config.d_head).transpose(0, 1)[None].clone()
