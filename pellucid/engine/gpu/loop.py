"""Steps that follow each other on the device: each embeds the tokens that the one before it chose.

The host launches steps ahead and reads their tokens behind. Of a text that ends, a few tokens may then have
been computed in vain: they are never read, and its cache is cropped to what was.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pellucid.engine.cache import Cache
from pellucid.engine.gpu.buffers import RING, find_slot
from pellucid.engine.gpu.drawing import DrawSettings

if TYPE_CHECKING:  # the decoder makes loops
    from pellucid.engine.gpu.decoder import GpuDecoder

WRITTEN = RING // 2
"""Steps for which the numbers u are written at a time; as many before them may still be running."""


class LoopText(NamedTuple):
    """A text that goes on by itself: its row of the cache, the token that it reads next, how many it may
    draw, how they are drawn (None: the largest logit), and the numbers u of all of them."""

    row: Cache
    id: int
    left: int
    settings: DrawSettings | None = None
    numbers: "np.ndarray[tuple[int], np.dtype[np.float64]] | None" = None


class DecodeLoop:
    """Texts in rows of one cache, whose next tokens the device chooses and reads."""

    def __init__(self, decoder: "GpuDecoder", texts: Sequence[LoopText]) -> None:
        self.decoder, self.texts = decoder, texts
        self.longest = max(int(text.row.host_lengths[0]) for text in texts)
        self.is_drawn = any(text.settings is not None for text in texts)
        self.launched = self.read = 0
        self._events: deque[torch.cuda.Event | None] = deque()
        decoder.bind(texts[0].row.whole)
        lengths = [int(text.row.host_lengths[0]) for text in texts]
        slots = [find_slot(text.row) for text in texts]
        ids, left = [text.id for text in texts], [text.left for text in texts]
        decoder.write_state(ids, lengths, slots, left, self)
        if self.is_drawn:
            decoder.draws.write([text.settings for text in texts])
        self.left = max(left)
        self._graph = decoder.find_graph(len(texts), self.longest + 1, self.is_drawn)
        self._graph.step.embed()

    def launch(self) -> None:
        """Launches one more step."""
        self._check_state()
        if self.is_drawn and self.launched % WRITTEN == 0:
            self._write_numbers()
        visible = min(self.longest + self.launched + 1, self.texts[0].row.capacity)
        self._graph = self.decoder.find_graph(len(self.texts), visible, self.is_drawn)
        self._graph.run()
        self.launched += 1
        event = None
        if self.decoder.buffers.x.is_cuda:
            event = torch.cuda.Event()
            event.record()
        self._events.append(event)

    def _write_numbers(self) -> None:
        """Writes the numbers u of the next steps, where the ring has room."""
        table = np.zeros((WRITTEN, len(self.texts)))
        for place, text in enumerate(self.texts):
            if text.numbers is not None:
                some = text.numbers[self.launched : self.launched + WRITTEN]
                table[: len(some), place] = some
        start = self.launched % RING
        self.decoder.draws.u[start : start + WRITTEN, : len(self.texts)].copy_(torch.from_numpy(table))

    @property
    def n_ahead(self) -> int:
        """Steps that are launched and not read."""
        return len(self._events)

    @property
    def can_launch(self) -> bool:
        """Returns whether a text may draw more tokens than the launched steps do."""
        return self.launched < self.left

    @property
    def is_ready(self) -> bool:
        """Returns whether the oldest step that is not read is complete."""
        return bool(self._events) and (self._events[0] is None or self._events[0].query())

    def take(self) -> list[int]:
        """Waits for the oldest step that is not read, and returns the token of each text: −1 where a logit
        was not a number. Those of a text that has ended mean nothing."""
        self._check_state()
        event = self._events.popleft()
        if event is not None:
            event.synchronize()
        tokens: list[int] = self.decoder.buffers.drawn[self.read % RING, : len(self.texts)].tolist()
        self.read += 1
        return tokens

    def end(self, place: int) -> None:
        """Ends a text on the device: steps that are launched from now on leave it out."""
        if self.decoder.loop is self:
            self.decoder.buffers.slots[place].fill_(-1)

    def _check_state(self) -> None:
        if self.decoder.loop is not self:
            raise RuntimeError("another call has used the decoder of this loop, whose texts it replaced.")
