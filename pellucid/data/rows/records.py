"""Records: one to a row, in a random order in every epoch, the rest of the row filled up.

A batch is as wide as its longest record, in steps of `STEP` so that there are few shapes. What fills a row up
stands after the record and is not counted, so no place that is sees it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from pellucid.data.permutation import Permutation
from pellucid.data.rows import Batch, Rows, blank, need_length
from pellucid.data.shard import Ids
from pellucid.errors import ConfigError

STEP = 32


class Records(Rows):
    """Each record is ids and targets of equal length, at most `length`."""

    def __init__(self, records: Sequence[tuple[Ids, Ids]], length: int, seed: int = 0, pad: int = 0) -> None:
        need_length(length)
        if not records:
            raise ConfigError("there are no records to learn from.")
        self.records, self.length, self.seed, self.pad, self.row = records, length, seed, pad, 0
        content = hashlib.sha256()
        for ids, targets in records:
            content.update(np.concatenate([ids, targets, [-1]]).astype(np.int64).tobytes())
        self._content = int.from_bytes(content.digest()[:6], "little")

    def take(self, count: int, mine: slice) -> Batch:
        rows = [self._record(row) for row in range(self.row + mine.start, self.row + mine.stop)]
        self.row += count
        longest = max((len(ids) for ids, _ in rows), default=0)
        batch = blank(len(rows), min(-(-longest // STEP) * STEP, self.length), self.pad)
        assert batch.segments is not None
        for row, (ids, targets) in enumerate(rows):
            here = slice(len(ids))
            batch.ids[row, here], batch.targets[row, here], batch.segments[row, here] = ids, targets, 0
        return batch

    def _record(self, row: int) -> tuple[Ids, Ids]:
        epoch, place = divmod(row, len(self.records))
        order = Permutation(len(self.records), self.seed, epoch, 6)
        return self.records[int(order(np.array([place]))[0])]

    def state(self) -> dict[str, int]:
        return {"row": self.row}

    def restore(self, state: dict[str, int]) -> None:
        self.row = state["row"]

    def identity(self) -> dict[str, int]:
        return {"content": self._content, "length": self.length, "seed": self.seed}
