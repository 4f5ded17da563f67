"""A mixture: each row comes from one of several sources, drawn by their weights.

The draw for row n depends on the seed and on n alone. Each source goes through its own epochs.
"""

from collections.abc import Sequence

import numpy as np

from pellucid.data.permutation import keys, mixed
from pellucid.data.rows import Batch, Rows, blank
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import Ids
from pellucid.errors import ConfigError


class Mixture(Rows):
    def __init__(self, sources: Sequence[Rows], weights: Sequence[float], seed: int = 0) -> None:
        if len(sources) != len(weights) or not sources:
            raise ConfigError(f"{len(sources)} sources need as many weights, and there are {len(weights)}.")
        if not all(0 <= weight < float("inf") for weight in weights) or not sum(weights):
            raise ConfigError(
                f"weights {list(weights)} are no shares: use numbers from 0, not all of them 0."
            )
        if wrong := [source for source in sources if not isinstance(source, Windows | Packed)]:
            raise ConfigError(
                f"{type(wrong[0]).__name__.lower()} rows belong together in a batch and cannot be mixed; "
                "mix windows or packed documents."
            )
        lengths = sorted({source.length for source in sources})
        if len(lengths) > 1:
            raise ConfigError(f"sources have rows of {lengths} tokens: give all the same length.")
        self.sources, self.length, self.seed, self.row = list(sources), lengths[0], seed, 0
        # Borders in 1/2⁵³, as whole numbers, so that every machine draws the same.
        shares = np.cumsum(np.array(weights, np.float64)) / np.sum(np.array(weights, np.float64))
        self.borders = np.round(shares * 2**53).astype(np.uint64)
        self._key = np.uint64(keys(seed, 4, count=1)[0])

    def drawn(self, first: int, count: int) -> Ids:
        """Which source each of these rows comes from."""
        numbers = mixed(mixed(np.arange(first, first + count, dtype=np.uint64) + self._key))
        return np.searchsorted(self.borders, numbers >> np.uint64(11), side="right")

    def take(self, count: int, mine: slice) -> Batch:
        drawn = self.drawn(self.row, count)
        self.row += count
        whole = blank(mine.stop - mine.start, self.length)
        assert whole.segments is not None
        for i, source in enumerate(self.sources):
            rows = np.flatnonzero(drawn == i)
            share = slice(*np.searchsorted(rows, [mine.start, mine.stop]).tolist())
            batch = source.take(len(rows), share)
            here = rows[share] - mine.start
            whole.ids[here], whole.targets[here] = batch.ids, batch.targets
            whole.segments[here] = 0 if batch.segments is None else batch.segments
        packed = any(isinstance(source, Packed) for source in self.sources)
        return whole if packed else Batch(whole.ids, whole.targets)

    def state(self) -> dict[str, int]:
        inner = {
            f"{i}.{key}": value
            for i, source in enumerate(self.sources)
            for key, value in source.state().items()
        }
        return {"row": self.row} | inner

    def restore(self, state: dict[str, int]) -> None:
        self.row = state["row"]
        for i, source in enumerate(self.sources):
            source.restore({key: state[f"{i}.{key}"] for key in source.state()})

    def identity(self) -> dict[str, int]:
        inner = {
            f"{i}.{key}": value
            for i, source in enumerate(self.sources)
            for key, value in source.identity().items()
        }
        borders = {f"border.{i}": int(border) for i, border in enumerate(self.borders)}
        return {"seed": self.seed} | borders | inner
