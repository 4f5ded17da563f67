"""Rows of a batch, cut from tokens in one of several ways, one file each.

A way is an endless, numbered sequence of rows that the seed decides. A reader takes the next `count` rows and
says which of them to build (`local`): every rank walks over the same sequence and builds its own share of it,
and the place that was reached is a few integers.

    data.rows    a row holds                                                   documents see each other
    windows      the next T tokens, wherever documents end                     yes
    packed       documents one after the other, cut where the row ends         no: a segment mask
    padded       one document, or a part of one, and padding                   no
    streams      the T tokens after those of the same row of the last batch    yes
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.shard import Ids

MANY_EPOCHS = 1000
"""Epochs in which the last batch, which is not full, counts for nothing."""


@dataclass(frozen=True)
class Batch:
    """Rows of token ids and their targets."""

    ids: Ids
    """[B T] int64."""
    targets: Ids
    """[B T] int64: the token after each id; `IGNORE_INDEX` where nothing is predicted."""
    segments: Ids | None = None
    """[B T] int64 where a row holds several documents: the number of the document in its row, 0, 1, …
    Attention sees only positions of the same segment, and positions count from 0 in each."""


class Rows(ABC):
    """One way to cut tokens into rows of `length` positions.

    With `epochs` above 0, the sequence holds exactly this many passes over the data: targets after them are
    `IGNORE_INDEX`.
    """

    length: int
    epochs: int = 0
    row: int = 0
    """The next row of the sequence, where that alone is the place that was reached."""

    @abstractmethod
    def take(self, count: int, local: slice) -> Batch:
        """Advances by `count` rows and returns those of the slice."""

    def state(self) -> dict[str, int]:
        """Returns the place that was reached: after `restore` of it, the same rows come."""
        return {"row": self.row}

    def restore(self, state: dict[str, int]) -> None:
        self.row = state["row"]

    @abstractmethod
    def identity(self) -> dict[str, int]:
        """Returns what decides the rows; a state belongs only to rows of the same identity."""

    def count_batches(self, count: int, epochs: int) -> int:
        """Returns the batches of `count` rows that hold this many epochs."""
        raise ConfigError(
            "data.epochs needs a data set with an end; these rows have none: give steps instead."
        )

    def count_steps_per_epoch(self, count: int) -> float | None:
        """Returns in how many batches of `count` rows the data are read once, a fraction of the last one
        included; None where they have no end."""
        try:
            return self.count_batches(count, MANY_EPOCHS) / MANY_EPOCHS
        except ConfigError:
            return None


def check_length(length: int) -> None:
    if length < 1:
        raise ConfigError(f"length={length} must be 1 or more: a row holds at least one token.")


def check_tokens(tokens: Any) -> None:
    if not len(tokens):
        raise ConfigError(
            f"{tokens.folder} has no tokens in its part {tokens.part!r}: prepare it with more text."
        )


def make_batch(count: int, length: int, fill: int = 0) -> Batch:
    """Returns rows of the id `fill` without targets, each one segment."""
    ids = np.full((count, length), fill, np.int64)
    return Batch(ids, np.full_like(ids, IGNORE_INDEX), np.zeros_like(ids))
