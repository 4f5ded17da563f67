"""Packed documents: one after the other in a random order, no place wasted, none seeing another.

A document that does not fit into what is left of a row goes on in the next. Each document is read as
`begin` and its tokens, if there is a begin token; its places predict its own tokens and nothing else. So in
every epoch each token of each document is a target exactly once (without a begin token: each but its first).
"""

from pellucid.data.rows import Batch, Rows, blank, need_length
from pellucid.data.rows.document_order import DocumentOrder
from pellucid.data.tokens import Tokens
from pellucid.errors import ConfigError


class Packed(Rows):
    def __init__(self, tokens: Tokens, length: int, seed: int = 0, begin: int | None = None) -> None:
        need_length(length)
        self.order, self.length = DocumentOrder(tokens, seed, begin), length
        if len(tokens) <= tokens.documents and begin is None:
            raise ConfigError("no document has two tokens, so nothing can be predicted: give a begin token.")
        self.document, self.place = 0, 0

    def take(self, count: int, mine: slice) -> Batch:
        batch = blank(mine.stop - mine.start, self.length)
        assert batch.segments is not None
        for row in range(count):
            made = row - mine.start if mine.start <= row < mine.stop else None
            filled, segment = 0, 0
            while filled < self.length:
                fits = min(self.length - filled, self.order.places(self.document) - self.place)
                if made is not None and fits:
                    here = slice(filled, filled + fits)
                    batch.ids[made, here], batch.targets[made, here] = self.order.piece(
                        self.document, self.place, fits
                    )
                    batch.segments[made, here] = segment
                filled, self.place, segment = filled + fits, self.place + fits, segment + (fits > 0)
                if self.place == self.order.places(self.document):
                    self.document, self.place = self.document + 1, 0
        return batch

    def state(self) -> dict[str, int]:
        return {"document": self.document, "place": self.place}

    def restore(self, state: dict[str, int]) -> None:
        self.document, self.place = state["document"], state["place"]

    def identity(self) -> dict[str, int]:
        return self.order.identity() | {"length": self.length}
