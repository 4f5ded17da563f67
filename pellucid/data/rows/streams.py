"""Contiguous streams: each row of a batch goes on where the same row of the batch before ended.

With R rows (over all ranks), row r reads the r-th of R equal stretches of the tokens, T at a time. Every
token but the very first is a target once in an epoch; where the last stretches are shorter, the rest is not
counted. For models that carry a state from batch to batch, and for reading a validation text in order
(R = 1).
"""

import numpy as np

from pellucid.data.rows import Batch, Rows, need_length, need_tokens
from pellucid.data.tokens import Tokens
from pellucid.errors import ConfigError
from pellucid.names import IGNORE_INDEX


class Streams(Rows):
    def __init__(self, tokens: Tokens, length: int) -> None:
        need_length(length)
        need_tokens(tokens)
        if len(tokens) < 2:
            raise ConfigError("one token has nothing before it and nothing after: streams need two or more.")
        self.tokens, self.length, self.batch = tokens, length, 0

    def batches(self, rows: int) -> int:
        """How many batches an epoch has."""
        return -(-self._stretch(rows) // self.length)

    def _stretch(self, rows: int) -> int:
        return -(-(len(self.tokens) - 1) // rows)

    def take(self, count: int, mine: slice) -> Batch:
        begin = self.batch % self.batches(count) * self.length
        self.batch += 1
        stretch, last = self._stretch(count), len(self.tokens) - 1
        ids = np.zeros((mine.stop - mine.start, self.length), np.int64)
        targets = np.full_like(ids, IGNORE_INDEX)
        for made, row in enumerate(range(mine.start, mine.stop)):
            start = row * stretch + begin
            size = min(self.length, stretch - begin, last - start)
            if size > 0:
                found = self.tokens.read(start, start + size + 1)
                ids[made, :size], targets[made, :size] = found[:-1], found[1:]
        return Batch(ids, targets)

    def state(self) -> dict[str, int]:
        return {"batch": self.batch}

    def restore(self, state: dict[str, int]) -> None:
        self.batch = state["batch"]

    def identity(self) -> dict[str, int]:
        return {"tokens": len(self.tokens), "length": self.length}
