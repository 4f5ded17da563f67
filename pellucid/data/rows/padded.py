"""Padded documents: one to a row, with rows of similar length together so that little is padding.

Documents come in a random order, `POOL` batches of them at a time; a pool is sorted by length and cut into
batches, and these come in a random order again. A document longer than a row takes several rows. Every token
is a target once in an epoch (without a bos token: every one but a document's first). A batch is as wide as
its longest row. Padding follows the document, so that a causal position never sees it.
"""

from typing import NamedTuple

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.data.permutation import Permutation
from pellucid.data.rows import Batch, Rows, check_length, make_batch
from pellucid.data.rows.document_order import DocumentOrder
from pellucid.data.tokens import Tokens

POOL = 16


class _Piece(NamedTuple):
    """The positions of a document that one row holds."""

    document: int
    first: int
    size: int


class Padded(Rows):
    """`pad` is the id that fills the rest of a row; it has no target."""

    def __init__(
        self,
        tokens: Tokens,
        length: int,
        seed: int = 0,
        bos: int | None = None,
        pad: int = 0,
        epochs: int = 0,
    ) -> None:
        check_length(length)
        if not 0 <= pad < tokens.vocab_size:
            raise ConfigError(f"pad={pad} is not a token: ids go from 0 to {tokens.vocab_size - 1}.")
        self.order, self.length, self.pad, self.epochs = DocumentOrder(tokens, seed, bos), length, pad, epochs
        self._begin_pool(0, 0, 0)

    def _begin_pool(self, document: int, position: int, batch: int) -> None:
        self.document, self.position, self.batch = document, position, batch
        self._pool: list[list[_Piece]] = []

    def take(self, count: int, local: slice) -> Batch:
        if self._pool and len(self._pool[0]) != count:
            raise ConfigError(
                f"padded documents come in batches of one size: {len(self._pool[0])} rows, not {count}."
            )
        if not self._pool:
            self._fill_pool(count)
        rows = self._pool[self.batch][local]
        batch = make_batch(len(rows), max([1, *(piece.size for piece in rows)]), self.pad)
        for row, piece in enumerate(rows):
            if piece.size:
                here = slice(piece.size)
                batch.ids[row, here], batch.targets[row, here] = self.order.read(*piece)
        self.batch += 1
        if self.batch == len(self._pool):
            self._begin_pool(*self._next, 0)
        return Batch(batch.ids, batch.targets)

    def _fill_pool(self, count: int) -> None:
        """Computes the batches of the pool that begins at this document, in the order in which they come.
        The last pool of the last epoch is smaller, and its last batch may have empty rows."""
        pieces, document, position = list[_Piece](), self.document, self.position
        last = self.epochs * self.order.tokens.documents or float("inf")
        while len(pieces) < POOL * count and document < last:
            positions = self.order.count_positions(document)
            if size := min(self.length, positions - position):
                pieces.append(_Piece(document, position, size))
            position += size
            if position == positions:
                document, position = document + 1, 0
        self._next = document, position
        pieces += [_Piece(document, 0, 0)] * (-len(pieces) % count or count * (not pieces))
        pieces.sort(key=lambda piece: piece.size)
        batches = len(pieces) // count
        order = Permutation(batches, self.order.seed, self.document, self.position, 3)(np.arange(batches))
        self._pool = [pieces[i * count : (i + 1) * count] for i in order.tolist()]

    def count_batches(self, count: int, epochs: int) -> int:
        pieces = epochs * int((-(-self.order.lengths() // self.length)).sum())
        return -(-pieces // count)

    def state(self) -> dict[str, int]:
        return {"document": self.document, "position": self.position, "batch": self.batch}

    def restore(self, state: dict[str, int]) -> None:
        if state["batch"] >= POOL:
            raise ConfigError(f"no batch {state['batch']} in a pool of {POOL}: this state is damaged.")
        self._begin_pool(state["document"], state["position"], state["batch"])

    def identity(self) -> dict[str, int]:
        return self.order.identity() | {"length": self.length}
