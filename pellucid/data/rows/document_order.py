"""The documents of every epoch in a random order, one after the other, without end."""

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.data.permutation import Permutation
from pellucid.data.rows import check_tokens
from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens

BLOCK = 1 << 12
"""Documents located at a time, or fewer where an epoch has fewer."""


class DocumentOrder:
    """Document n of the endless sequence, for n from 0. With a `bos` token, it is read as that token and its
    own; without one, its first token is only an input."""

    def __init__(self, tokens: Tokens, seed: int, bos: int | None) -> None:
        check_tokens(tokens)
        if bos is not None and not 0 <= bos < tokens.vocab_size:
            raise ConfigError(f"bos={bos} is not a token: ids go from 0 to {tokens.vocab_size - 1}.")
        if len(tokens) <= tokens.documents and bos is None:
            raise ConfigError("no document has two tokens, so nothing can be predicted: give a bos token.")
        self.tokens, self.seed, self.bos = tokens, seed, bos
        self._size = min(BLOCK, max(64, tokens.documents))
        self._block, self._bounds = -1, list[tuple[int, int]]()

    def bounds(self, n: int) -> tuple[int, int]:
        """Returns where document n begins and ends in the tokens."""
        if n // self._size != self._block:
            self._block = n // self._size
            self._bounds = self._compute_bounds(self._block * self._size)
        return self._bounds[n % self._size]

    def _compute_bounds(self, first: int) -> list[tuple[int, int]]:
        numbers, size = np.arange(first, first + self._size), self.tokens.documents
        epochs, documents = numbers // size, np.empty(self._size, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            documents[here] = Permutation(size, self.seed, epoch, 2)(numbers[here] % size)
        begins, ends = self.tokens.bounds(documents)
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def count_positions(self, n: int) -> int:
        """Returns the positions that document n takes: one for each target."""
        start, stop = self.bounds(n)
        return max(0, stop - start - (self.bos is None))

    def lengths(self) -> Ids:
        """Returns the positions of every document of an epoch, in the order of the files."""
        return document_lengths(self.tokens, self.bos)[1]

    def read(self, n: int, first: int, count: int) -> tuple[Ids, Ids]:
        """Returns ids and targets of `count` positions of document n."""
        return read_document(self.tokens, self.bos, self.bounds(n)[0], first, count)

    def identity(self) -> dict[str, int]:
        size, documents = len(self.tokens), self.tokens.documents
        bos = -1 if self.bos is None else self.bos
        return {"tokens": size, "documents": documents, "seed": self.seed, "bos": bos}


def document_lengths(tokens: Tokens, bos: int | None) -> tuple[Ids, Ids]:
    """Returns where each document begins in the tokens and how many positions it takes, in their order."""
    begins, ends = tokens.bounds(np.arange(tokens.documents))
    return begins, np.maximum(0, ends - begins - (bos is None))


def read_document(tokens: Tokens, bos: int | None, start: int, first: int, count: int) -> tuple[Ids, Ids]:
    """Returns ids and targets of `count` positions of the document at `start`, from position `first` on."""
    if bos is None:
        ids = tokens.read(start + first, start + first + count + 1)
        return ids[:-1], ids[1:]
    targets = tokens.read(start + first, start + first + count)
    if first:
        return tokens.read(start + first - 1, start + first + count - 1), targets
    return np.concatenate([np.array([bos], targets.dtype), targets[:-1]]), targets
