"""A mixture: each row comes from one of several sources, drawn by their weights.

The draw for row n depends on the seed and on n alone. Each source has epochs of its own length.
"""

from collections.abc import Sequence

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.data.permutation import derive_keys, splitmix64
from pellucid.data.rows import Batch, Rows, make_batch
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import Ids


class Mixture(Rows):
    def __init__(self, sources: Sequence[Rows], weights: Sequence[float], seed: int = 0) -> None:
        if len(sources) != len(weights) or not sources:
            raise ConfigError(f"{len(sources)} sources need one weight each; got {len(weights)}.")
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):  # NaN makes the sum NaN
            raise ConfigError(
                f"weights {list(weights)} must be numbers from 0, and their sum finite and above 0."
            )
        if wrong := [source for source in sources if not isinstance(source, Windows | Packed)]:
            raise ConfigError(
                f"{type(wrong[0]).__name__.lower()} rows are chosen for a whole batch and cannot be mixed; "
                "mix windows or packed documents."
            )
        lengths = sorted({source.length for source in sources})
        if len(lengths) > 1:
            raise ConfigError(f"sources have rows of {lengths} tokens: they must have one length.")
        self.sources, self.length, self.seed = list(sources), lengths[0], seed
        # Cumulative weights in units of 1/2⁵³, as integers, so that every machine draws the same.
        shares = np.cumsum(np.array(weights, np.float64)) / np.sum(np.array(weights, np.float64))
        self.borders = np.round(shares * 2**53).astype(np.uint64)
        self._key = np.uint64(derive_keys(seed, 4, count=1)[0])

    def draw(self, first: int, count: int) -> Ids:
        """Returns which source each of these rows comes from."""
        numbers = splitmix64(splitmix64(np.arange(first, first + count, dtype=np.uint64) + self._key))
        return np.searchsorted(self.borders, numbers >> np.uint64(11), side="right")

    def take(self, count: int, local: slice) -> Batch:
        drawn = self.draw(self.row, count)
        self.row += count
        whole = make_batch(local.stop - local.start, self.length)
        assert whole.segments is not None
        for i, source in enumerate(self.sources):
            rows = np.flatnonzero(drawn == i)
            share = slice(*np.searchsorted(rows, [local.start, local.stop]).tolist())
            batch = source.take(len(rows), share)
            here = rows[share] - local.start
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
        return super().state() | inner

    def restore(self, state: dict[str, int]) -> None:
        super().restore(state)
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
