"""Contiguous streams: each row of a batch continues where the same row of the batch before ended.

With R rows (over all ranks), row r reads the r-th of R equal stretches of the tokens, T at a time. Every
token but the very first is a target once in an epoch; where the last stretches are shorter, the rest has no
targets. For models that carry a state from batch to batch, and for reading a text in order (R = 1).
"""

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.rows import Batch, Rows, check_length, check_tokens
from pellucid.data.tokens import Tokens


class Streams(Rows):
    def __init__(self, tokens: Tokens, length: int, epochs: int = 0) -> None:
        check_length(length)
        check_tokens(tokens)
        if len(tokens) < 2:
            raise ConfigError("streams need two tokens or more: an input and a target.")
        self.tokens, self.length, self.epochs, self.batch = tokens, length, epochs, 0

    def count_batches(self, count: int, epochs: int = 1) -> int:
        return epochs * -(-self._stretch(count) // self.length)

    def _stretch(self, rows: int) -> int:
        return -(-(len(self.tokens) - 1) // rows)

    def take(self, count: int, local: slice) -> Batch:
        epoch, batch = divmod(self.batch, self.count_batches(count))
        self.batch += 1
        begin, stretch, last = batch * self.length, self._stretch(count), len(self.tokens) - 1
        ids = np.zeros((local.stop - local.start, self.length), np.int64)
        targets = np.full_like(ids, IGNORE_INDEX)
        for place, row in enumerate(range(local.start, local.stop)):
            start = row * stretch + begin
            size = min(self.length, stretch - begin, last - start)
            if size > 0 and not (self.epochs and epoch >= self.epochs):
                found = self.tokens.read(start, start + size + 1)
                ids[place, :size], targets[place, :size] = found[:-1], found[1:]
        return Batch(ids, targets)

    def state(self) -> dict[str, int]:
        return {"batch": self.batch}

    def restore(self, state: dict[str, int]) -> None:
        self.batch = state["batch"]

    def identity(self) -> dict[str, int]:
        return {"tokens": len(self.tokens), "length": self.length}
