"""The documents of every epoch in a random order, one after the other, without end."""

import numpy as np

from pellucid.data.permutation import Permutation
from pellucid.data.rows import need_tokens
from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens
from pellucid.errors import ConfigError

BLOCK = 1 << 12
"""Documents found at a time, or fewer where an epoch has fewer."""


class DocumentOrder:
    """Document number n of the endless list, for n from 0: where it begins and ends in the tokens."""

    def __init__(self, tokens: Tokens, seed: int, begin: int | None) -> None:
        need_tokens(tokens)
        if begin is not None and not 0 <= begin < tokens.vocab_size:
            raise ConfigError(f"begin={begin} is no token: ids go from 0 to {tokens.vocab_size - 1}.")
        self.tokens, self.seed, self.begin = tokens, seed, begin
        self._size = min(BLOCK, max(64, tokens.documents))
        self._block, self._bounds = -1, list[tuple[int, int]]()

    def bounds(self, n: int) -> tuple[int, int]:
        if n // self._size != self._block:
            self._block = n // self._size
            self._bounds = self._computed(self._block * self._size)
        return self._bounds[n % self._size]

    def _computed(self, first: int) -> list[tuple[int, int]]:
        numbers, size = np.arange(first, first + self._size), self.tokens.documents
        epochs, documents = numbers // size, np.empty(self._size, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            documents[here] = Permutation(size, self.seed, epoch, 2)(numbers[here] % size)
        begins, ends = self.tokens.bounds(documents)
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def places(self, n: int) -> int:
        """How many places of a row it takes: one for each token but the last, which is only a target."""
        start, stop = self.bounds(n)
        return max(0, stop - start - (self.begin is None))

    def piece(self, n: int, first: int, count: int) -> tuple[Ids, Ids]:
        """Ids and targets of some of its places."""
        start, _ = self.bounds(n)
        if self.begin is None:
            ids = self.tokens.read(start + first, start + first + count + 1)
            return ids[:-1], ids[1:]
        targets = self.tokens.read(start + first, start + first + count)
        if first:
            return self.tokens.read(start + first - 1, start + first + count - 1), targets
        return np.concatenate([np.array([self.begin], targets.dtype), targets[:-1]]), targets

    def identity(self) -> dict[str, int]:
        size, documents = len(self.tokens), self.tokens.documents
        begin = -1 if self.begin is None else self.begin
        return {"tokens": size, "documents": documents, "seed": self.seed, "begin": begin}
