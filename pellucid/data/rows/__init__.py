"""The ways to cut tokens into the rows of a batch, one file each.

A way is an endless, numbered list of rows that the seed decides. Whoever reads it takes the next `count` and
says which of them to make (`mine`): so every rank walks over the same list and makes its own share of it, and
what has been read is remembered in a few integers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.data.shard import Ids
from pellucid.errors import ConfigError
from pellucid.names import IGNORE_INDEX


@dataclass(frozen=True)
class Batch:
    """Rows of ids and what should follow each of them."""

    ids: Ids
    """[B T], whole numbers of 64 bits."""
    targets: Ids
    """[B T]; `IGNORE_INDEX` where nothing is to be predicted."""
    segments: Ids | None = None
    """[B T], where rows hold documents: 0, 1, … by document, −1 for padding. Attention that must stop at
    documents' borders lets a place see another only where both have the same number."""


class Rows(ABC):
    """One way to cut tokens into rows of `length` places."""

    length: int

    @abstractmethod
    def take(self, count: int, mine: slice) -> Batch:
        """Go on by `count` rows and make those of the slice."""

    @abstractmethod
    def state(self) -> dict[str, int]:
        """Where it stands: after `restore` of this, the same rows come."""

    @abstractmethod
    def restore(self, state: dict[str, int]) -> None: ...

    @abstractmethod
    def identity(self) -> dict[str, int]:
        """What decides the rows; a state is of use only where this is the same."""


def need_length(length: int) -> None:
    if length < 1:
        raise ConfigError(f"rows of {length} tokens hold nothing: use length=1 or more.")


def need_tokens(tokens: Any) -> None:
    if not len(tokens):
        raise ConfigError(
            f"{tokens.folder} has no tokens in its part {tokens.part!r}: prepare it with more text."
        )


def blank(count: int, length: int, fill: int = 0) -> Batch:
    """Rows with nothing in them yet."""
    shape = (count, length)
    return Batch(
        np.full(shape, fill, np.int64), np.full(shape, IGNORE_INDEX, np.int64), np.full(shape, -1, np.int64)
    )
