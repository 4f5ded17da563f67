"""Windows: the tokens as one ring, cut into windows of equal length that come in a random order.

An epoch begins at a random offset o of the ring (the last token is followed by the first) and cuts it into
W = ⌈N / T⌉ windows; a keyed permutation gives their order. Window w reads the tokens o + wT … o + wT + T − 1
and predicts the token after each. Where T does not divide N, the last window is longer than the rest of the
ring, and its positions beyond that have no targets. So in every epoch each of the N tokens is a target
exactly once. A window ignores where documents end: what follows an end token sees the document before it.
"""

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.permutation import Permutation, derive_keys
from pellucid.data.rows import Batch, Rows, check_length, check_tokens
from pellucid.data.shard import Ids, id_type
from pellucid.data.tokens import Tokens

BLOCK = 1 << 12
"""Windows located at a time; one by one, NumPy's calls would cost more than the rows. Fewer where an epoch is
short, since each epoch has another order."""


class Windows(Rows):
    def __init__(self, tokens: Tokens, length: int, seed: int = 0, epochs: int = 0) -> None:
        check_length(length)
        check_tokens(tokens)
        self.tokens, self.length, self.seed, self.epochs = tokens, length, seed, epochs
        self.per_epoch = -(-len(tokens) // length)
        self._size = min(BLOCK, max(64, self.per_epoch))
        self._block, self._starts = -1, np.empty(0, np.int64)

    def offset(self, epoch: int) -> int:
        """Returns where on the ring an epoch begins."""
        return derive_keys(self.seed, epoch, 0, count=1)[0] % len(self.tokens)

    def take(self, count: int, local: slice) -> Batch:
        first, last = self.row + local.start, self.row + local.stop
        self.row += count
        starts, counted = self._locate(first, last)
        raw = np.empty((len(starts), self.length + 1), id_type(self.tokens.vocab_size))
        for row, start in enumerate(starts):
            raw[row] = self._read_ring(start)
        if raw.max(initial=0) >= self.tokens.vocab_size:
            for start in starts:  # read again, for the error that names the token
                self.tokens.read(start, min(start + self.length + 1, len(self.tokens)))
            self.tokens.read(0, min(self.length, len(self.tokens)))
        ids, targets = raw[:, :-1].astype(np.int64), raw[:, 1:].astype(np.int64)
        for row in np.flatnonzero(counted < self.length).tolist():
            targets[row, counted[row] :] = IGNORE_INDEX
        return Batch(ids, targets)

    def _read_ring(self, start: int) -> Ids:
        stop, size = start + self.length + 1, len(self.tokens)
        if stop <= size:
            return self.tokens.read_unchecked(start, stop)  # a check for all rows is faster than one for each
        pieces = [self.tokens.read_unchecked(start, size)]
        left = stop - size
        while left:
            pieces.append(self.tokens.read_unchecked(0, min(left, size)))
            left -= len(pieces[-1])
        return np.concatenate(pieces)

    def _locate(self, first: int, last: int) -> tuple[list[int], Ids]:
        """Returns for each of these rows where its window begins, and how many targets it has."""
        found: list[Ids] = []
        at = first
        while at < last:
            if at // self._size != self._block:
                self._block = at // self._size
                self._starts = self._compute_starts(self._block * self._size)
            inside = self._starts[at % self._size : at % self._size + last - at]
            found.append(inside)
            at += len(inside)
        windows = np.concatenate([*found, np.empty((0, 2), np.int64)])
        return windows[:, 0].tolist(), windows[:, 1]

    def _compute_starts(self, row: int) -> Ids:
        rows = np.arange(row, row + self._size)
        epochs, size = rows // self.per_epoch, len(self.tokens)
        found = np.empty((self._size, 2), np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            order = Permutation(self.per_epoch, self.seed, epoch, 1)
            begin = order(rows[here] % self.per_epoch) * self.length
            found[here, 0] = (begin + self.offset(epoch)) % size
            found[here, 1] = np.minimum(self.length, size - begin)
        if self.epochs:
            found[epochs >= self.epochs, 1] = 0
        return found

    def count_batches(self, count: int, epochs: int) -> int:
        return -(-epochs * self.per_epoch // count)

    def identity(self) -> dict[str, int]:
        return {"tokens": len(self.tokens), "length": self.length, "seed": self.seed}
