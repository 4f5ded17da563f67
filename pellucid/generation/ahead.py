"""Texts that go on by themselves on a GPU: the device chooses their tokens, and the engine reads them behind.

A few steps are always launched ahead, so that the device does not wait for the host. A text that ends is
taken out; what was computed of it in vain is never read.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.generation.handle import Handle
from pellucid.generation.samplers.chain import NOTHING, Chain, Chosen
from pellucid.generation.samplers.drawn_token import draw_uniforms
from pellucid.generation.slots import CacheSlots, Feed
from pellucid.generation.strategies.sample import Sample, TextRow

if TYPE_CHECKING:  # which imports Triton
    from pellucid.engine.gpu.drawing import DrawSettings
    from pellucid.engine.gpu.loop import DecodeLoop

log = logging.getLogger(__name__)
STEPS = 6
"""Steps that are launched and not read; also the most tokens of a text that are computed in vain."""
NO_LOGITS = torch.empty(0, 0)


def find_host_reason(handle: Handle) -> str | None:
    """Returns why a request's tokens are chosen on the host, None where the device can choose them."""
    from pellucid.engine.gpu.drawing import DRAWN

    strategy, job = handle.strategy, handle.strategy.job
    kinds = [sampler.kind for sampler in job.chain.samplers]
    others = [kind for kind in kinds if kind not in DRAWN or kinds.count(kind) > 1]
    reasons = (
        (type(strategy) is not Sample, "beams or drafts"),
        (job.wanted.entry, "the ledger"),
        (job.wanted != NOTHING, "log-probabilities"),
        (bool(others), f"the sampler {others[0] if others else ''}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


@cache
def say_host_reason(reason: str) -> None:
    """Logs, once, why the tokens of a request are chosen on the host."""
    log.info("tokens are chosen on the host: the device has no form of %s.", reason)


def can_go_ahead(decoder: GpuDecoder, slots: CacheSlots, handles: Sequence[Handle]) -> bool:
    """Returns whether the device can go on with all these requests by itself, in one loop."""
    return (
        decoder.can_loop(slots.cache)
        and all(map(_can_choose, handles))
        and sum(len(handle.strategy.rows) for handle in handles) <= decoder.most
    )


def _can_choose(handle: Handle) -> bool:
    """Returns whether every text of a request reads one token after the other, and the device can choose
    them."""
    strategy = handle.strategy
    return (
        strategy.has_begun
        and not strategy.reads_prompt
        and not handle.waits_for_reader
        and not handle.needs_host
        and find_host_reason(handle) is None
    )


def make_draw_settings(chain: Chain) -> "DrawSettings | None":
    """Returns a chain's samplers as the device has them; None where the token with the largest logit is
    taken."""
    from pellucid.engine.gpu.drawing import DrawSettings

    if chain.is_greedy:
        return None
    return DrawSettings(**{sampler.kind: getattr(sampler, sampler.kind) for sampler in chain.samplers})


class Ahead:
    """The running texts of an engine in one loop on the device."""

    def __init__(self, decoder: GpuDecoder, slots: CacheSlots, handles: Sequence[Handle]) -> None:
        self.decoder, self.slots, self.handles = decoder, slots, set(handles)
        self.texts = [(handle, row) for handle in handles for row in handle.strategy.rows]
        self.ended: set[int] = set()
        self.loop = self._begin(decoder)

    def _begin(self, decoder: GpuDecoder) -> "DecodeLoop":
        from pellucid.engine.gpu.loop import LoopText

        texts = []
        for handle, row in self.texts:
            chain, new = handle.strategy.job.chain, len(row.output.ids)
            room = self.slots.cache.capacity - len(row.tokens) + 1
            left = min(handle.strategy.job.max_new_tokens - new, room)
            settings = make_draw_settings(chain)
            numbers = None if settings is None else draw_uniforms(chain.seed, row.output.choice, new, left)
            texts.append(LoopText(self.slots.rows[row.slot], row.tokens[-1], left, settings, numbers))
        return decoder.begin_loop(texts)

    def launch(self) -> None:
        """Launches steps until enough are ahead."""
        while self.loop.n_ahead < STEPS and self.loop.can_launch:
            self.loop.launch()

    @property
    def has_steps(self) -> bool:
        """Returns whether a launched step is not read."""
        return self.loop.n_ahead > 0

    @property
    def is_ready(self) -> bool:
        """Returns whether tokens are there without waiting."""
        return self.loop.is_ready

    def take(self) -> list[tuple[Handle, list[Chosen | PellucidError]]]:
        """Waits for the oldest step, and returns the tokens of each request that goes on."""
        chosen: dict[int, tuple[Handle, list[Chosen | PellucidError]]] = {}
        for place, ((handle, row), token) in enumerate(zip(self.texts, self.loop.take(), strict=True)):
            if place in self.ended or handle.is_done:
                continue
            if token < 0:  # a logit is not a number: the host reads the token again, and says which
                handle.needs_host = True
                self.end(place)
                continue
            self.slots.keep(Feed(row.slot, ((row.tokens[-1],),), 1))
            chosen.setdefault(id(handle), (handle, []))[1].append(Chosen(token))
        return list(chosen.values())

    def end(self, place: int) -> None:
        """Takes a text out of the steps that are launched from now on."""
        self.ended.add(place)
        self.loop.end(place)

    def end_finished(self) -> None:
        """Takes out the texts that have ended, or whose context is full and is read again."""
        for place, (handle, row) in enumerate(self.texts):
            if place not in self.ended and (handle.is_done or not _goes_on(row, self.slots)):
                self.end(place)

    def can_stay(self, handles: Sequence[Handle]) -> bool:
        """Returns whether these requests are all in the loop, no reader is behind, and nothing is
        recorded."""
        is_held = all(handle in self.handles and not handle.waits_for_reader for handle in handles)
        return is_held and self.decoder.can_loop(self.slots.cache)

    @property
    def is_over(self) -> bool:
        """Returns whether no text is left, or one that goes on was taken out."""
        if len(self.ended) == len(self.texts):
            return True
        left_out = (self.texts[place] for place in self.ended)
        return any(row.output.finish is None and not handle.is_done for handle, row in left_out)

    def close(self) -> None:
        """Crops the cache of every text to the tokens that were read of it."""
        lengths = self.slots.cache.host_lengths.copy()
        for _, row in self.texts:
            lengths[row.slot] = len(self.slots.tokens[row.slot])
        self.slots.cache.set_lengths(lengths)


def _goes_on(row: TextRow, slots: CacheSlots) -> bool:
    return row.output.finish is None and len(slots.tokens[row.slot]) == len(row.tokens) - 1
