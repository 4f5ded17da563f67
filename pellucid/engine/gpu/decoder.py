"""A module's decoder on a GPU: `forward_packed` of the same model, weights and caches, by a few kernels.

    decoder = GpuDecoder(module)
    engine = Engine(decoder)  # where the engine takes a Transformer

New tokens, one of each text or several of a prompt, are computed by the kernels, whose launches are one
recorded CUDA graph; the module reads prompts of long texts, and those of a window's ring. Numbers between the
kernels are float32, and products with bfloat16 or quantized weights are exact up to the rounding of float32
sums, so that only weights and cache are rounded. Values are recorded under their names as in any fused path;
where a recording needs every value, or an edit changes one, the module runs instead.
"""

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.cpu.obstacles import find_module_obstacle
from pellucid.engine.gpu.buffers import PLANES, RING, Buffers, find_slot, is_readable
from pellucid.engine.gpu.captured_module import ModuleDecoder
from pellucid.engine.gpu.drawing import DrawBuffers
from pellucid.engine.gpu.matrices import Matrix
from pellucid.engine.gpu.tiles import (
    BUCKETS,
    LARGEST_BLOCK,
    MOST_SCORES,
    PROMPT_BUCKETS,
    count_splits,
    find_bucket,
)
from pellucid.engine.taps import begin_call, current_watcher, is_explicit
from pellucid.engine.transformer import Transformer

if TYPE_CHECKING:  # Triton is imported when a decoder is made
    from pellucid.engine.gpu.graphs import GraphKey, StepGraph
    from pellucid.engine.gpu.loop import DecodeLoop, LoopText
    from pellucid.engine.gpu.step import DecodeStep


def find_obstacle(module: Transformer) -> str | None:
    """Returns what keeps a model from this decoder, None where nothing does."""
    reasons = (
        (module.device.type != "cuda", f"weights on {module.device}"),
        (importlib.util.find_spec("triton") is None, "Triton, which is not installed"),
        (module.config.d_model > LARGEST_BLOCK, f"more than {LARGEST_BLOCK:,} channels"),
    )
    found = next((reason for is_so, reason in reasons if is_so), None)
    return found or find_module_obstacle(module, has_caps=True) or _find_mixed_gate(module)


def _find_mixed_gate(module: Transformer) -> str | None:
    """Returns the reason where gate and up matrices, which one kernel multiplies, are of different types."""
    if module.config.mlp.form != "gated":
        return None
    for index in range(module.config.n_layer):
        names = (f"blocks.{index}.mlp.{name}_proj" for name in ("gate", "up"))
        layers: list[Any] = [module.get_submodule(name) for name in names]
        if len({Matrix.read(layer.weight, layer.bias).kind for layer in layers}) > 1:
            return "gate and up matrices of different types"
    return None


class GpuDecoder(ModuleDecoder):
    """Computes what `Transformer.forward_packed` does, by kernels in float32.

    A step is of at most `most` tokens, rounded up to a bucket. One thread at a time may use a decoder."""

    def __init__(self, module: Transformer, most: int = BUCKETS[-1]) -> None:
        from pellucid.engine.gpu.graphs import Graphs

        super().__init__(module)
        self.most = find_bucket(most)
        holds_floats = module.dtype == torch.float32 and not module.quantized_weights()
        self.buffers = Buffers(self.config, self.most, module.device, 1 if holds_floats else PLANES)
        self.graphs = Graphs(self._make_step)
        self.cache: Cache | None = None
        """The cache whose addresses the recorded steps hold."""
        self.loop: DecodeLoop | None = None
        """The loop whose texts the buffers hold, None where they hold those of a call."""

    @cached_property
    def draws(self) -> DrawBuffers:
        """The buffers of drawn tokens, made when the first is drawn."""
        return DrawBuffers(self.config.vocab_size, self.most, RING, self.device)

    # ---- recorded steps

    def bind(self, cache: Cache) -> None:
        """Makes steps read and write this cache; those of another one are dropped."""
        from pellucid.engine.gpu.graphs import Graphs

        if self.cache is not cache:
            self.cache, self.graphs = cache, Graphs(self._make_step)

    def find_graph(
        self, count: int, longest: int, is_drawn: bool = False, reads_prompts: bool = False
    ) -> "StepGraph":
        """Returns the recorded step of this many tokens, whose longest text has `longest` tokens."""
        from pellucid.engine.gpu.graphs import GraphKey

        assert self.cache is not None
        self.module.cover(longest)
        visible = longest if self.cache.ring is None else min(longest, self.cache.ring.last)
        bucket = min(find_bucket(count, PROMPT_BUCKETS), self.most) if reads_prompts else find_bucket(count)
        covered = self.module.positions.covered
        return self.graphs.find(GraphKey(bucket, count_splits(visible), is_drawn, reads_prompts, covered))

    def _make_step(self, key: "GraphKey") -> "DecodeStep":
        from pellucid.engine.gpu.step import DecodeStep

        assert self.cache is not None
        buffers = [(layer.buffers[0], layer.buffers[1]) for layer in self.cache.layers]
        ring = self.cache.ring.last if self.cache.ring else 0
        draws = self.draws if key.is_drawn else None
        step = (self.module, buffers, self.buffers, key.texts, key.splits, ring)
        return DecodeStep(*step, draws, key.reads_prompts)

    def begin_loop(self, texts: "Sequence[LoopText]") -> "DecodeLoop":
        """Returns the loop that goes on with texts, each from its last token, on the device alone."""
        from pellucid.engine.gpu.loop import DecodeLoop

        return DecodeLoop(self, texts)

    def can_loop(self, cache: Cache) -> bool:
        """Returns whether texts of a cache can go on by themselves: kernels read it, and nothing watches the
        module."""
        return is_readable(cache) and current_watcher(self.module) is None

    # ---- running

    def forward_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        """Appends tokens to several caches of one row each, and returns the logits [N V] of the tokens at the
        places `wanted` of the concatenated ids: `Transformer.forward_packed`."""
        if is_explicit(self.module) or not self.can_decode(rows):
            return self.module.forward_packed(rows, wanted)
        watcher = begin_call(self.module)
        whole, counts = rows[0][0].whole, [len(ids) for _, ids in rows]
        tokens = list[tuple[int, int, int]]()
        for cache, ids in rows:
            cache.reserve(len(ids))
            slot, start = find_slot(cache), int(cache.host_lengths[0])
            tokens += [(id, start + place, slot) for place, id in enumerate(ids)]
        self.bind(whole)
        ids, positions, slots = zip(*tokens, strict=True)
        self.write_state(ids, positions, slots, [1] * len(tokens))
        graph = self.find_graph(len(tokens), max(positions) + 1, reads_prompts=max(counts) > 1)
        graph.step.embed()
        whole.advance_rows([find_slot(cache) for cache, _ in rows], counts)
        if watcher is None:
            graph.run()
        else:
            from pellucid.engine.gpu.recording import DecodeRecorder

            caches = [cache for cache, _ in rows]
            DecodeRecorder(self.module, self.buffers, list(zip(caches, counts, strict=True))).run(graph.step)
        logits = self.buffers.logits[: len(tokens)]
        return logits[list(wanted)]

    def can_decode(self, rows: Sequence[tuple[Cache, Sequence[int]]]) -> bool:
        """Returns whether kernels compute these tokens: every row is a text of its own, in a cache of
        floats; and where there are prompts, the cache is not a ring, and the texts are not long."""
        whole, count = rows[0][0].whole, sum(len(ids) for _, ids in rows)
        longest = max(int(cache.host_lengths[0]) + len(ids) for cache, ids in rows)
        is_decode = all(len(ids) == 1 for _, ids in rows)
        return (
            0 < count <= self.most
            and all(ids and cache.whole is whole and cache.batch == 1 for cache, ids in rows)
            and len({find_slot(cache) for cache, _ in rows}) == len(rows)
            and is_readable(whole)
            and (is_decode or (whole.ring is None and count * longest <= MOST_SCORES))
        )

    def packs_prompts(self, cache: Cache) -> bool:
        """Returns whether tokens of several texts and prompts are computed together."""
        return is_readable(cache) and cache.ring is None

    def write_state(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        left: Sequence[int],
        loop: "DecodeLoop | None" = None,
    ) -> None:
        """Writes what a step begins with to the device; rows beyond these have ended, and so has any other
        loop."""
        count, self.loop = len(ids), loop
        state = torch.zeros(5, self.most, dtype=torch.int32)
        state[2].fill_(-1)
        state[:4, :count] = torch.tensor([list(ids), list(positions), list(slots), list(left)])
        self.buffers.state.copy_(state, non_blocking=True)

    def forward_cached(
        self, ids: Tensor, cache: Cache, lengths: list[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Runs `Transformer.forward_cached`: rows in one rectangle are the module's."""
        return self.module.forward_cached(ids, cache, lengths, last_only)
