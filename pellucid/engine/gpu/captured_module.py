"""A module whose decode step over all slots is recorded as a CUDA graph, whatever its choices are.

The step is the module's own, so its numbers are: launching several hundred kernels one by one takes the host
longer than the device needs to run them.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.layer_cache import SlotCache
from pellucid.engine.taps import current_watcher, is_explicit
from pellucid.engine.transformer import Transformer


class ModuleDecoder:
    """Stands where the module stands; subclasses compute some of its calls in another way."""

    def __init__(self, module: Transformer) -> None:
        self.module, self.config = module, module.config

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        return self.module.cache_dtype


def capture(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Records what `run` launches, and returns the graph and what `run` returned.

    Meanwhile no garbage is collected: the end of another graph, which may be part of a cycle, would break
    the recording off.
    """
    graph, is_collecting = torch.cuda.CUDAGraph(), gc.isenabled()
    torch.cuda.synchronize()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = run()
    finally:
        if is_collecting:
            gc.enable()
    return graph, result


class RecordedCall(NamedTuple):
    """A recorded call of the module: its graph, its inputs [B 1] and [B], its logits [B 1 V], and the tables
    that it reads, kept also when the module has made longer ones."""

    graph: Any
    ids: Tensor
    new_lengths: Tensor
    logits: Tensor
    tables: list[Tensor]


class RecordedModule(ModuleDecoder):
    """Computes what the module does; `forward_cached` of one token in each row by a recorded graph, one for
    each length of keys that the cache shows."""

    def __init__(self, module: Transformer) -> None:
        super().__init__(module)
        self._calls: dict[int, RecordedCall] = {}
        self._cache: Cache | None = None

    def forward_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        """Runs `Transformer.forward_packed`."""
        return self.module.forward_packed(rows, wanted)

    def forward_cached(
        self, ids: Tensor, cache: Cache, lengths: list[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Runs `Transformer.forward_cached`, by a recorded graph where it can be one."""
        is_step = ids.shape[1] == 1 and lengths is not None and self.device.type == "cuda"
        if not is_step or not self._can_record(cache):
            return self.module.forward_cached(ids, cache, lengths, last_only)
        assert lengths is not None
        if self._cache is not cache:
            self._cache, self._calls = cache, {}
        cache.reserve(1, lengths)
        call = self._calls.get(cache.visible_length) or self._record(cache, ids)
        call.ids.copy_(ids)
        assert cache.new_lengths is not None
        call.new_lengths.copy_(cache.new_lengths)
        call.graph.replay()
        cache.advance(lengths)
        return call.logits.clone()

    def _can_record(self, cache: Cache) -> bool:
        """Returns whether a step may run twice, as recording does: it writes the same keys and values to
        their slots; and whether its values are neither watched nor edited."""
        is_watched = current_watcher() is not None or is_explicit(self.module)
        return not is_watched and all(isinstance(layer, SlotCache) for layer in cache.layers)

    def _record(self, cache: Cache, ids: Tensor) -> RecordedCall:
        assert cache.new_lengths is not None
        held, lengths = ids.clone(), cache.new_lengths.clone()
        cache.new_lengths = lengths
        for _ in range(2):  # libraries choose their kernels and take their memory
            self._run(held, cache)
        graph, logits = capture(lambda: self._run(held, cache))
        call = self._calls[cache.visible_length] = RecordedCall(
            graph, held, lengths, logits, list(self.module.buffers())
        )
        return call

    def _run(self, ids: Tensor, cache: Cache) -> Tensor:
        return self.module.logits(self.module.hidden_states(ids, cache=cache))
