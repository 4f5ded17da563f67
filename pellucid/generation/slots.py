"""The slots of the engine: the rows of one cache, each with the tokens of one text.

A prompt is read in chunks with fixed borders, each in a call of its own, whatever else the engine does, so
that the keys of a whole chunk depend on the tokens up to its end alone, bit for bit. A slot therefore may
take whole chunks from another slot whose text begins with the same tokens (prefix reuse). Tokens of different
texts are decoded together, in calls of so few rows that none depends on the others (`engine/linear.py`). The
fused step of a GPU, which makes no promise of bits, reads tokens of all texts and prompts together.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.base.errors import ResourceError
from pellucid.base.formatting import format_bytes
from pellucid.engine.cache import Cache
from pellucid.engine.device_memory import get_free_memory
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.linear import MOST_DECODED
from pellucid.generation.decoders import Decoder

CHUNK = 128
"""Tokens of a prompt between two borders."""
STRIDE = 256
"""Steps in which the keys that a static step attends to grow."""

_One = tuple[int, tuple[int, ...], bool]
"""A feed's place, the one token of a segment, and whether its logits are wanted."""
_Found = dict[int, list[Tensor]]
"""The logits of each feed, by its place."""


class Feed(NamedTuple):
    """Tokens that one request reads in one step: they follow those of a slot.

    Attention is computed segment by segment, in order. The logits of the last `outputs` tokens are returned.
    """

    slot: int
    segments: tuple[tuple[int, ...], ...]
    outputs: int

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.segments))

    @property
    def is_decode(self) -> bool:
        """Returns whether it is one token with its logits."""
        return self.outputs == 1 and self.n_tokens == 1


class CacheSlots:
    """The rows of a cache, which of them are free, and the tokens that each holds."""

    def __init__(
        self,
        model: Decoder,
        count: int,
        capacity: int,
        dtype: torch.dtype,
        memory: int | None = None,
        chunk: int = CHUNK,
        is_static: bool | None = None,
    ) -> None:
        size = Cache(model.config, count, capacity, dtype=dtype, device="meta").bytes
        allowed = get_free_memory(model.device) if memory is None else memory
        if size > allowed:
            raise ResourceError(
                f"a cache of {count} slots for {capacity:,} tokens each takes {format_bytes(size)}, and "
                f"{format_bytes(allowed)} are {'free' if memory is None else 'allowed'}: use fewer slots, a "
                "smaller capacity, or an int8 cache."
            )
        self.model, self.count, self.chunk = model, count, chunk
        fused = find_fused(model)
        self.most_decoded = MOST_DECODED if fused is None else fused.most
        """Tokens of different texts that are read in one call."""
        is_recorded = fused is None and model.device.type == "cuda"
        self.is_static = is_recorded if is_static is None else is_static
        """Whether decode steps run over all slots at once, in shapes that change only every `STRIDE` tokens,
        as CUDA graphs need; otherwise row by row, so that a row does not depend on the others."""
        stride = min(STRIDE, capacity) if self.is_static else 1
        with torch.inference_mode(False):  # else no other thread could change it
            self.cache = Cache(model.config, count, capacity, dtype=dtype, device=model.device, stride=stride)
        self.is_packed = fused is not None and fused.packs_prompts(self.cache)
        """Whether tokens of any texts and prompts are read in one call."""
        self.rows = [self.cache.row(slot) for slot in range(count)]
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        self.whole_chunks = [0] * count
        """How many of a slot's tokens were read in whole chunks, so that another slot may have them."""
        self.free = deque(range(count))
        """The slots that no request holds, the longest free first."""
        self.first_border = max(chunk, int(model.config.mask.bidirectional_prefix))

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
        slot = source if shared and source in self.free else self.free[0]
        self._take_prefix(slot, source, shared)
        self.free.remove(slot)  # now that nothing can fail any more
        return slot

    def _find_shared(self, prompt: Sequence[int]) -> tuple[int, int]:
        """Returns the slot with the longest common beginning in whole chunks, and its length."""
        if not self.cache.can_rewind:
            return 0, 0
        lengths = [
            self.last_border(min(count_equal(held[:whole], prompt), len(prompt) - 1))
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
        if (
            not self.is_static
            and 0 < len(feeds) <= self.most_decoded
            and all(feed.is_decode for feed in feeds)
        ):
            return self._decode(feeds)
        if self.is_packed:
            return self._read_packed(feeds)
        found = {at: list[Tensor]() for at in range(len(feeds))}
        decoded = list[_One]()
        for at, feed in enumerate(feeds):
            left = feed.n_tokens
            for after, ids in zip(range(len(feed.segments) - 1, -1, -1), feed.segments, strict=True):
                left -= len(ids)
                outputs = min(max(feed.outputs - left, 0), len(ids))
                if len(ids) == 1 and left == after:  # no longer segment follows, which would be read before
                    decoded.append((at, ids, outputs > 0))
                else:
                    wanted = range(len(ids) - outputs, len(ids))
                    found[at].append(self.model.forward_packed([(self.rows[feed.slot], ids)], wanted))
        if self.is_static and all(feeds[at].is_decode for at, _, _ in decoded):
            self._decode_all(feeds, decoded, found)
        else:
            self._decode_rows(feeds, decoded, found)
        for feed in feeds:
            self.keep(feed)
        logits = [part for parts in found.values() for part in parts]
        return join_rows(logits) if logits else torch.empty(0, self.model.config.vocab_size)

    def _decode(self, feeds: Sequence[Feed]) -> Tensor:
        """Reads one token of each feed in one call, without what longer feeds need: of a small model that
        would take longer than the call."""
        rows = [(self.rows[feed.slot], feed.segments[-1]) for feed in feeds]
        logits = self.model.forward_packed(rows, range(len(rows)))
        for feed in feeds:
            self.keep(feed)
        return logits

    def _read_packed(self, feeds: Sequence[Feed]) -> Tensor:
        """Reads the tokens of all feeds, in as few calls as they fit."""
        logits = [self.model.forward_packed(rows, wanted) for rows, wanted in self._pack(feeds)]
        for feed in feeds:
            self.keep(feed)
        return join_rows(logits) if logits else torch.empty(0, self.model.config.vocab_size)

    def _pack(self, feeds: Sequence[Feed]) -> Iterator[tuple[list[tuple[Cache, list[int]]], list[int]]]:
        """Yields calls of at most `most_decoded` tokens: rows, and the places whose logits are wanted."""
        rows, wanted, count = list[tuple[Cache, list[int]]](), list[int](), 0
        for feed in feeds:
            ids = [id for segment in feed.segments for id in segment]
            while ids:
                room = self.most_decoded - count
                some, ids = ids[:room], ids[room:]
                rows.append((self.rows[feed.slot], some))
                count += len(some)
                wanted += range(count - min(max(feed.outputs - len(ids), 0), len(some)), count)
                if count == self.most_decoded:
                    yield rows, wanted
                    rows, wanted, count = [], [], 0
        if rows:
            yield rows, wanted

    def _decode_rows(self, feeds: Sequence[Feed], decoded: Sequence[_One], found: _Found) -> None:
        """Reads single tokens, in calls of at most `most_decoded`; attention row by row."""
        for start in range(0, len(decoded), self.most_decoded):
            some = decoded[start : start + self.most_decoded]
            rows = [(self.rows[feeds[at].slot], ids) for at, ids, _ in some]
            wanted = [place for place, (_, _, is_wanted) in enumerate(some) if is_wanted]
            logits = self.model.forward_packed(rows, wanted)
            for place, row in zip(wanted, logits, strict=True):
                found[some[place][0]].append(row[None])

    def _decode_all(self, feeds: Sequence[Feed], decoded: Sequence[_One], found: _Found) -> None:
        """Reads one token in each of some slots, in one call over all slots."""
        if not decoded:
            return
        ids, counts = [[0] for _ in range(self.count)], [0] * self.count
        for at, (id,), _ in decoded:
            ids[feeds[at].slot], counts[feeds[at].slot] = [id], 1
        device = self.model.device
        logits = self.model.forward_cached(torch.tensor(ids, device=device), self.cache, counts)
        for at, _, _ in decoded:
            found[at].append(logits[feeds[at].slot])

    def keep(self, feed: Feed) -> None:
        """Notes that a slot holds the tokens of a feed."""
        tokens = self.tokens[feed.slot]
        for ids in feed.segments:
            start, end = len(tokens), len(tokens) + len(ids)
            if start == self.whole_chunks[feed.slot] and end == self.next_border(start):
                self.whole_chunks[feed.slot] = end
            tokens.extend(ids)


def find_fused(model: Any) -> GpuDecoder | None:
    """Returns the fused step of a GPU, where it reads the tokens, also under observation; else None."""
    decoder = getattr(model, "observed", model)
    return decoder if isinstance(decoder, GpuDecoder) else None


def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """Returns the rows [N V] of several parts; of one, the part itself: copying a row of logits on several
    threads takes longer than a step of a small model."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def split_rows(logits: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """Returns the parts of logits [N V] that have these numbers of rows."""
    return (logits,) if len(counts) == 1 else logits.split(list(counts))


def get_row(logits: Tensor, row: int) -> Tensor:
    """Returns one row of logits [N V], as [1 V]."""
    return logits if len(logits) == 1 else logits[row : row + 1]


def count_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many first tokens are the same.

    >>> count_equal([1, 2, 3], [1, 2, 4, 5])
    2
    """
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
