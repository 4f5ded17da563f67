"""Records: one to a row, in a random order in every epoch, followed by padding.

A batch is as wide as its longest record, in multiples of `STEP` so that there are few shapes. Padding follows
the record and has no targets, so that a causal position with a target never sees it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.permutation import Permutation
from pellucid.data.rows import Batch, Rows, check_length, make_batch
from pellucid.data.shard import Ids

STEP = 32


class Records(Rows):
    """Each record is ids and targets of equal length, at most `length`."""

    def __init__(
        self,
        records: Sequence[tuple[Ids, Ids]],
        length: int,
        seed: int = 0,
        pad: int = 0,
        epochs: int = 0,
    ) -> None:
        check_length(length)
        if not records:
            raise ConfigError("the training data has 0 records.")
        self.records, self.length, self.seed, self.pad = records, length, seed, pad
        self.epochs = epochs
        content = hashlib.sha256()
        for ids, targets in records:
            content.update(np.concatenate([ids, targets, [-1]]).astype(np.int64).tobytes())
        self._content = int.from_bytes(content.digest()[:6], "little")

    def take(self, count: int, local: slice) -> Batch:
        rows = [self._read(row) for row in range(self.row + local.start, self.row + local.stop)]
        self.row += count
        longest = max((len(ids) for ids, _ in rows), default=0)
        batch = make_batch(len(rows), min(-(-longest // STEP) * STEP, self.length), self.pad)
        for row, (ids, targets) in enumerate(rows):
            batch.ids[row, : len(ids)], batch.targets[row, : len(ids)] = ids, targets
        return Batch(batch.ids, batch.targets)

    def _read(self, row: int) -> tuple[Ids, Ids]:
        epoch, place = divmod(row, len(self.records))
        order = Permutation(len(self.records), self.seed, epoch, 6)
        ids, targets = self.records[int(order(np.array([place]))[0])]
        beyond = self.epochs and epoch >= self.epochs
        return ids, np.full(len(targets), IGNORE_INDEX) if beyond else targets

    def count_batches(self, count: int, epochs: int) -> int:
        return -(-epochs * len(self.records) // count)

    def identity(self) -> dict[str, int]:
        return {"content": self._content, "length": self.length, "seed": self.seed}
