"""Checks the state of a cache: a random schedule of everything that an engine does with its slots.

Prompts of any length join, share prefixes and are read in chunks while others decode; rows are cropped,
copied, given back and used again. Whatever happened to a slot, each value of the text that it holds must
follow from that text alone.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from pellucid.engine.linear import MOST_DECODED
from pellucid.generation.decoders import Decoder
from pellucid.generation.slots import CHUNK, CacheSlots, Feed
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.observed import ObservedSlots, make_feed
from pellucid.verification.checks.engine.paths import PathRun

SLOTS, ROUNDS = 5, 4
SMALL_CHUNK = 8
"""Tokens of a chunk, so that short prompts have several."""
LONGEST = 40
"""Tokens of a text in the random schedule; more, where a window must be passed."""
AFTER_CHUNK = 9
"""Tokens that are read after a chunk of the engine's own size."""
THIRD = 3
"""One of this many reads of several tokens asks for the logits of the last token alone."""


class Schedule:
    """Random operations on slots, drawn from a seed: the same for the same model and seed."""

    def __init__(self, subject: Subject, slots: CacheSlots, longest: int, seed: int = 0) -> None:
        self.slots, self.longest = slots, longest
        self.rng = np.random.default_rng(seed)
        self.vocab_size = subject.config.vocab_size
        self.prefix = int(subject.config.mask.bidirectional_prefix)
        self.prompt = subject.make_ids(longest)
        """Prompts begin with some of these tokens, so that they have prefixes to share."""
        self.held: list[int] = []
        self.ids: dict[int, list[int]] = {}
        """The tokens that each slot must hold, whatever the slots themselves say."""
        self.logits: list[Tensor] = []
        self.prompts = 0
        """How many reads of several tokens there were."""
        self.last_only: set[int] = set()
        """The calls in which the logits of last tokens alone were asked for."""

    def run(self, rounds: int) -> None:
        """Runs every operation in each round, in random order."""
        operations: list[Callable[[], None]] = [self.decode, self.decode, self.prefill, self.prefill]
        operations += [self.crop, self.fork, self.release, self.clear]
        self.prefill()
        for _ in range(rounds):
            for place in self.rng.permutation(len(operations)):
                operations[place]()
        self.decode()

    def prefill(self) -> None:
        """Reads a new prompt, which may share a prefix, while the other texts decode a token."""
        if not self.slots.free:
            self.release()
        least = max(self.prefix, 1)
        shared = self.prompt[: self.draw(0, self.longest // 2)]
        length = self.draw(least, max(least, self.longest - 6))
        prompt = [*shared, *self.draw_ids(self.longest)][:length]
        slot = self.slots.acquire(prompt)
        others = [other for other in self.held if self.has_room(other)]
        self.held.append(slot)
        self.ids[slot] = prompt[: len(self.slots.tokens[slot])]
        decoded = {other: self.draw_ids(1) for other in others}
        own = {slot: prompt[len(self.slots.tokens[slot]) :]}
        self.read(own | decoded if len(self.logits) % 2 else decoded | own)  # either may come first in a call

    def decode(self) -> None:
        """Reads one token in some of the texts, two in one of them: a proposed token with the last one."""
        some = [slot for slot in self.held if self.has_room(slot) and self.rng.random() < 0.8]
        self.read({slot: self.draw_ids(1) for slot in some})
        if some and self.has_room(some[0]):
            self.read({some[0]: self.draw_ids(2 if self.has_room(some[0], 2) else 1)})

    def crop(self) -> None:
        """Removes the last tokens of a text, as a rejected proposal does."""
        if self.held and self.slots.cache.can_rewind:
            slot = self.pick(self.held)
            most = len(self.slots.tokens[slot])
            length = self.draw(min(max(self.prefix, 1), most), most)
            self.slots.rewind(slot, length)
            del self.ids[slot][length:]

    def fork(self) -> None:
        """Makes a free slot a copy of a text, as further choices and beams do; both go on differently."""
        if self.held and self.slots.free:
            source = max(self.held, key=lambda slot: len(self.slots.tokens[slot]))
            target = self.slots.acquire()
            self.copy(source, target)
            self.held.append(target)
            if self.has_room(source):
                self.read({source: self.draw_ids(1), target: self.draw_ids(1)})

    def release(self) -> None:
        """Gives a slot back; it keeps its tokens until it is taken again."""
        if self.held:
            slot = self.pick(self.held)
            self.held.remove(slot)
            self.slots.release(slot)

    def clear(self) -> None:
        """Empties a slot and reads a shorter text, as a context that is full does."""
        if self.held:
            slot = self.pick(self.held)
            kept = self.slots.tokens[slot][-max(self.prefix, 1, self.draw(1, self.longest // 2)) :]
            self.slots.reset(slot)
            self.ids[slot] = []
            self.read({slot: kept if len(kept) >= self.prefix else self.draw_ids(self.prefix)})

    # ---- what the operations are made of

    def read(self, tokens: dict[int, list[int]], last_only: bool | None = None) -> None:
        """Reads tokens after those of slots with the logits of all, or of the last alone, as a prompt is read
        to go on with it; by default of the last in every third read of several tokens."""
        feeds = list[Feed]()
        for slot, ids in ((slot, ids) for slot, ids in tokens.items() if ids):
            self.prompts += len(ids) > 1
            is_third = len(ids) > 1 and self.prompts % THIRD == 0
            is_last = is_third if last_only is None else last_only
            feeds.append(make_feed(self.slots, slot, ids, 1 if is_last else len(ids)))
        if feeds:
            if any(feed.outputs < feed.n_tokens for feed in feeds):
                self.last_only.add(len(self.logits))
            self.logits.append(self.slots.forward(feeds))
        for slot, ids in tokens.items():
            self.ids.setdefault(slot, []).extend(ids)

    def copy(self, source: int, target: int) -> None:
        self.slots.copy(source, target)
        self.ids[target] = list(self.ids[source])

    def result(self) -> PathRun:
        """Returns what the slots computed for the tokens that they must hold."""
        if not isinstance(self.slots, ObservedSlots):
            return PathRun([], self.logits)
        texts, wrong_keys = list(self.slots.join_recorded(self.ids)), self.slots.observer.wrong_keys
        return PathRun(texts, self.logits, wrong_keys, frozenset(self.last_only))

    def has_room(self, slot: int, count: int = 1) -> bool:
        return len(self.slots.tokens[slot]) + count <= self.longest

    def draw(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, max(low, high) + 1))

    def draw_ids(self, count: int) -> list[int]:
        return [int(id) for id in self.rng.integers(0, self.vocab_size, count)]

    def pick(self, slots: list[int]) -> int:
        return slots[int(self.rng.integers(len(slots)))]


def _make_slots(
    module: Decoder, count: int, capacity: int, is_watched: bool, chunk: int, is_static: bool = False
) -> CacheSlots:
    make = ObservedSlots if is_watched else CacheSlots
    return make(module, count, capacity, module.cache_dtype, chunk=chunk, is_static=is_static)


def run_schedule(subject: Subject, module: Decoder, is_watched: bool, is_static: bool = False) -> PathRun:
    """Runs the random schedule; its slots hold texts that pass a window, where there is one."""
    visible = subject.config.mask.visible_past
    window = sum(visible) if visible and subject.length > sum(visible) else 0
    longest = max(LONGEST, window + 8 if window else 0)
    capacity = min(longest + 1, subject.config.context_length)
    longest = max(min(longest, capacity - 1), 1)  # a static step writes behind the last token of every row
    chunk = max(SMALL_CHUNK, window + 3 if window else 0)  # one call reads more than a window, too
    slots = _make_slots(module, SLOTS, capacity, is_watched, chunk, is_static and capacity > longest)
    schedule = Schedule(subject, slots, longest)
    schedule.run(ROUNDS // 2 or 1 if subject.is_quick and subject.is_large else ROUNDS)
    return schedule.result()


def run_static_schedule(subject: Subject, module: Decoder, is_watched: bool) -> PathRun:
    """The same schedule, each decode step one call over all slots, as on a GPU."""
    return run_schedule(subject, module, is_watched, is_static=True)


def run_decoded(subject: Subject, module: Decoder, is_watched: bool) -> PathRun:
    """Decodes 1, 2, 3, 9, 17 and more texts at once than one call takes: kernels change with the number."""
    prefix = subject.make_ids(max(int(subject.config.mask.bidirectional_prefix), 2))
    count, steps = MOST_DECODED + 1, (1, 2, 3, 9, 17, MOST_DECODED + 1)
    capacity = len(prefix) + len(steps)
    if capacity > subject.config.context_length:
        return run_schedule(subject, module, is_watched)
    slots = _make_slots(module, count, capacity, is_watched, SMALL_CHUNK)
    schedule = Schedule(subject, slots, capacity)
    first = slots.acquire()
    schedule.read({first: prefix})
    for slot in range(count):
        if slot != first:
            schedule.copy(first, slot)
    for some in steps:
        schedule.read({slot: schedule.draw_ids(1) for slot in range(some)})
    return schedule.result()


def run_long_prompt(subject: Subject, module: Decoder, is_watched: bool) -> PathRun:
    """Reads a prompt that is longer than the engine's own chunk, decodes, reads its beginning again from the
    slot that has it, and its first chunk in one call, both for the logits of the last token alone."""
    capacity = min(CHUNK + AFTER_CHUNK + 4, subject.config.context_length)
    prefix = int(subject.config.mask.bidirectional_prefix)
    chunk = CHUNK if capacity > CHUNK + AFTER_CHUNK else max(1, capacity // 3)
    slots = _make_slots(module, 3, capacity, is_watched, chunk)
    schedule = Schedule(subject, slots, capacity)
    prompt = subject.make_ids(max(capacity - 4, prefix, 1))
    schedule.read({slots.acquire(prompt): prompt})
    for _ in range(capacity - len(prompt)):
        schedule.read({slot: schedule.draw_ids(1) for slot, held in enumerate(slots.tokens) if held})
    again = slots.acquire(prompt)
    schedule.ids[again] = prompt[: len(slots.tokens[again])]
    schedule.read({again: prompt[len(slots.tokens[again]) :]}, last_only=True)
    whole, border = slots.acquire(), slots.first_border
    schedule.read({whole: prompt[:border]}, last_only=True)
    schedule.read({whole: prompt[border : border + 1]})
    del schedule.ids[whole]  # the same tokens as in the first slot, whose values are judged
    return schedule.result()
