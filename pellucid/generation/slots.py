"""The slots of the engine: the rows of one cache, each with the tokens of one text.

A prompt is read in chunks with fixed borders, positions 0 to 63, 64 to 127, …, whatever else the engine does,
so that the keys of a whole chunk depend on the tokens up to its end alone, bit for bit. A slot therefore may
take whole chunks from another slot whose text begins with the same tokens (prefix reuse).
"""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from pellucid.errors import ResourceError
from pellucid.format import format_bytes
from pellucid.generation.feed import Feed
from pellucid.model.cache import Cache
from pellucid.model.transformer import Transformer

CHUNK = 64
"""Tokens of a prompt between two borders."""


class CacheSlots:
    """The rows of a cache, which of them are free, and the tokens that each holds."""

    def __init__(
        self,
        model: Transformer,
        count: int,
        capacity: int,
        dtype: torch.dtype,
        memory: int | None = None,
        chunk: int = CHUNK,
        is_static: bool | None = None,
    ) -> None:
        size = Cache(model.config, count, capacity, dtype=dtype, device="meta").bytes
        if memory is not None and size > memory:
            raise ResourceError(
                f"a cache of {count} slots for {capacity:,} tokens each takes {format_bytes(size)}, and "
                f"{format_bytes(memory)} are allowed: use fewer slots, a smaller capacity, or an int8 cache."
            )
        self.model, self.count, self.chunk = model, count, chunk
        self.cache = Cache(model.config, count, capacity, dtype=dtype, device=model.device)
        self.rows = [self.cache.row(slot) for slot in range(count)]
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        self.whole_chunks = [0] * count
        """How many of a slot's tokens were read in whole chunks, so that another slot may have them."""
        self.free = deque(range(count))
        """The slots that no request holds, the longest free first."""
        self.first_border = max(chunk, int(model.config.mask.bidirectional_prefix))
        self.is_static = model.device.type == "cuda" if is_static is None else is_static
        """Whether decode steps run over all slots at once, in shapes that never change, as CUDA graphs need;
        otherwise row by row, so that a row does not depend on the others."""

    # ---- borders

    def next_border(self, position: int) -> int:
        """Returns the end of the chunk in which a position lies."""
        if position < self.first_border:
            return self.first_border
        return position + self.chunk - (position - self.first_border) % self.chunk

    def last_border(self, length: int) -> int:
        """Returns the last border among the first `length` tokens, 0 where there is none."""
        if length < self.first_border:
            return 0
        return length - (length - self.first_border) % self.chunk

    # ---- taking and giving back

    def acquire(self, prompt: Sequence[int] = ()) -> int:
        """Returns a free slot that holds as much of the prompt as any slot has, but not all of it: the last
        token is read for its logits."""
        source, shared = self._find_shared(prompt)
        if shared and source in self.free:
            self.free.remove(source)
            slot = source
        else:
            slot = self.free.popleft()
        self._take_prefix(slot, source, shared)
        return slot

    def _find_shared(self, prompt: Sequence[int]) -> tuple[int, int]:
        """Returns the slot with the longest common beginning in whole chunks, and its length."""
        if not self.cache.can_rewind:
            return 0, 0
        lengths = [
            self.last_border(min(_count_equal(held[:whole], prompt), len(prompt) - 1))
            for held, whole in zip(self.tokens, self.whole_chunks, strict=True)
        ]
        longest = max(lengths)
        return lengths.index(longest), max(longest, 0)

    def _take_prefix(self, slot: int, source: int, shared: int) -> None:
        if slot != source:
            self.reset(slot)
            if shared:
                self.copy(source, slot)
        self.rewind(slot, shared)

    def release(self, slot: int) -> None:
        """Gives a slot back; it keeps its tokens until it is taken again."""
        if self.is_static and len(self.tokens[slot]) >= self.cache.capacity:
            self.rewind(slot, 0)  # a static step writes behind the last token of every row
        self.free.append(slot)

    def reset(self, slot: int) -> None:
        """Removes every token of a slot."""
        self.rows[slot].crop(0)
        self.tokens[slot], self.whole_chunks[slot] = [], 0

    def rewind(self, slot: int, length: int) -> None:
        """Removes the tokens of a slot behind the first `length`."""
        self.rows[slot].crop(length)
        self.tokens[slot] = self.tokens[slot][:length]
        self.whole_chunks[slot] = min(self.whole_chunks[slot], self.last_border(length))

    def copy(self, source: int, target: int) -> None:
        """Makes a slot a copy of another."""
        self.cache.copy_row(source, target)
        self.tokens[target] = list(self.tokens[source])
        self.whole_chunks[target] = self.whole_chunks[source]

    # ---- running the model

    def forward(self, feeds: Sequence[Feed]) -> Tensor:
        """Reads the tokens of every feed and returns the logits that they ask for, [Σ outputs V], in order.

        If it raises, the slots of the feeds must be reset.
        """
        at_once = [feed for feed in feeds if self.is_static and feed.is_decode]
        others = [feed for feed in feeds if not (self.is_static and feed.is_decode)]
        found: dict[int, Tensor] = {}
        if at_once:
            found |= self._decode(at_once)
        if others:
            rows = [(self.rows[feed.slot], ids) for feed in others for ids in feed.segments]
            ends, wanted = 0, list[int]()
            for feed in others:
                ends += feed.n_tokens
                wanted += range(ends - feed.outputs, ends)
            logits = self.model.forward_packed(rows, wanted)
            parts = logits.split([feed.outputs for feed in others])
            found |= {id(feed): part for feed, part in zip(others, parts, strict=True)}
        for feed in feeds:
            self._keep(feed)
        return torch.cat([found[id(feed)] for feed in feeds])

    def _decode(self, feeds: Sequence[Feed]) -> dict[int, Tensor]:
        """Reads one token in each of some slots, in one call over all slots."""
        ids, counts = [[0] for _ in range(self.count)], [0] * self.count
        for feed in feeds:
            ids[feed.slot], counts[feed.slot] = [feed.segments[0][0]], 1
        device = self.model.device
        logits = self.model.forward_cached(torch.tensor(ids, device=device), self.cache, counts)
        return {id(feed): logits[feed.slot] for feed in feeds}

    def _keep(self, feed: Feed) -> None:
        tokens = self.tokens[feed.slot]
        for ids in feed.segments:
            start, end = len(tokens), len(tokens) + len(ids)
            if start == self.whole_chunks[feed.slot] and end == self.next_border(start):
                self.whole_chunks[feed.slot] = end
            tokens.extend(ids)


def _count_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many first tokens are the same.

    >>> _count_equal([1, 2, 3], [1, 2, 4, 5])
    2
    """
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
