"""Padded documents: one to a row, with rows of like length together so that little is padding.

Documents come in a random order, `POOL` batches of them at a time; a pool is sorted by length and cut into
batches, and these come in a random order again. A document longer than a row takes several rows. Every token
is a target once in an epoch (without a begin token: every one but a document's first). A batch is as wide as
its longest row.
"""

import numpy as np

from pellucid.data.permutation import Permutation
from pellucid.data.rows import Batch, Rows, blank, need_length
from pellucid.data.rows.document_order import DocumentOrder
from pellucid.data.tokens import Tokens
from pellucid.errors import ConfigError

POOL = 16


class Padded(Rows):
    """`pad` fills what is left of a row; where it stands nothing is counted."""

    def __init__(
        self, tokens: Tokens, length: int, seed: int = 0, begin: int | None = None, pad: int = 0
    ) -> None:
        need_length(length)
        if not 0 <= pad < tokens.vocab_size:
            raise ConfigError(f"pad={pad} is no token: ids go from 0 to {tokens.vocab_size - 1}.")
        self.order, self.length, self.pad = DocumentOrder(tokens, seed, begin), length, pad
        if len(tokens) <= tokens.documents and begin is None:
            raise ConfigError("no document has two tokens, so nothing can be predicted: give a begin token.")
        self._begin_pool(0, 0, 0)

    def _begin_pool(self, document: int, place: int, batch: int) -> None:
        self.document, self.place, self.batch = document, place, batch
        self._pool: list[list[tuple[int, int, int]]] = []

    def take(self, count: int, mine: slice) -> Batch:
        if self._pool and len(self._pool[0]) != count:
            raise ConfigError(
                f"padded documents come in batches of one size: {len(self._pool[0])} rows, not {count}."
            )
        if not self._pool:
            self._fill(count)
        rows = self._pool[self.batch][mine]
        made = blank(len(rows), max((size for *_, size in rows), default=0), self.pad)
        assert made.segments is not None
        for row, (document, place, size) in enumerate(rows):
            made.ids[row, :size], made.targets[row, :size] = self.order.piece(document, place, size)
            made.segments[row, :size] = 0
        self.batch += 1
        if self.batch == POOL:
            self._begin_pool(*self._next, 0)
        return made

    def _fill(self, count: int) -> None:
        """The batches of the pool that begins at this document, in the order in which they come."""
        rows, document, place = list[tuple[int, int, int]](), self.document, self.place
        while len(rows) < POOL * count:
            places = self.order.places(document)
            if size := min(self.length, places - place):
                rows.append((document, place, size))
            place += size
            if place == places:
                document, place = document + 1, 0
        self._next = document, place
        rows.sort(key=lambda row: row[2])
        order = Permutation(POOL, self.order.seed, self.document, self.place, 3)(np.arange(POOL))
        self._pool = [rows[i * count : (i + 1) * count] for i in order.tolist()]

    def state(self) -> dict[str, int]:
        return {"document": self.document, "place": self.place, "batch": self.batch}

    def restore(self, state: dict[str, int]) -> None:
        if state["batch"] >= POOL:
            raise ConfigError(f"no batch {state['batch']} in a pool of {POOL}: this state is damaged.")
        self._begin_pool(state["document"], state["place"], state["batch"])

    def identity(self) -> dict[str, int]:
        return self.order.identity() | {"length": self.length}
