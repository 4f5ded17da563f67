"""The most and the least expected passages of some documents: those of the smallest and of the largest mean
surprisal, none of which overlaps another."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pellucid.evaluation.scoring import DocumentScores

LENGTH = 48
"""Counted targets of a passage; a shorter document is a passage as a whole."""
BEFORE = 24
"""Targets before a passage that are kept as context."""
MOST = 5
"""Passages of each kind."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Passage:
    """Consecutive counted targets of a document: ids, −ln p in nats, and rank (0: the most likely token)."""

    document: str
    first: int
    """The number of its first target among the counted ones of the document."""
    before: tuple[int, ...]
    """Ids of the targets before it."""
    ids: tuple[int, ...]
    nll: tuple[float, ...]
    rank: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean −ln p."""
        return sum(self.nll) / len(self.nll)


class Passages(NamedTuple):
    """`expected`: smallest mean surprisal first; `unexpected`: largest first."""

    expected: tuple[Passage, ...]
    unexpected: tuple[Passage, ...]


class PassageFinder:
    """Takes the scores of one document after the other and keeps `most` passages of each kind."""

    def __init__(self, most: int = MOST, length: int = LENGTH) -> None:
        self.most, self.length = most, length
        self._number = count()
        self._kept: dict[int, list[tuple[float, int, Passage]]] = {-1: [], 1: []}
        """Heaps by sign: 1 keeps the largest means, −1 the smallest; the worst of those kept comes first."""

    def add(self, scores: "DocumentScores") -> None:
        """Takes the scores of one document."""
        for sign, kept in self._kept.items():
            for first, mean in find_extremes(sign * scores.nll, min(self.length, len(scores.nll)), self.most):
                if len(kept) < self.most or mean > kept[0][0]:
                    # Of equal means the earlier passage is kept, so a later one counts as worse.
                    entry = mean, -next(self._number), self._cut(scores, first)
                    (heapq.heappush if len(kept) < self.most else heapq.heapreplace)(kept, entry)

    def _cut(self, scores: "DocumentScores", first: int) -> Passage:
        here = slice(first, first + self.length)
        return Passage(
            scores.name,
            first,
            tuple(scores.targets[max(0, first - BEFORE) : first].tolist()),
            tuple(scores.targets[here].tolist()),
            tuple(scores.nll[here].tolist()),
            tuple(scores.rank[here].tolist()),
        )

    def finish(self) -> Passages:
        """Returns the passages, the most extreme first."""
        expected, unexpected = (sorted(self._kept[sign], reverse=True) for sign in (-1, 1))
        return Passages(tuple(one for *_, one in expected), tuple(one for *_, one in unexpected))


def find_extremes(values: Floats, length: int, most: int) -> Iterator[tuple[int, float]]:
    """Yields the first index and the mean of up to `most` runs of `length` values that do not overlap, those
    of the largest mean first.

    >>> list(find_extremes(np.array([0.0, 1.0, 5.0, 5.0, 0.0, 3.0, 3.0]), 2, 2))
    [(2, 5.0), (5, 3.0)]
    """
    if length < 1:
        return
    sums = np.concatenate(([0.0], np.cumsum(values)))
    means = (sums[length:] - sums[:-length]) / length
    for _ in range(most):
        best = int(np.argmax(means))
        if means[best] == -np.inf:
            return
        yield best, float(means[best])
        means[max(0, best - length + 1) : best + length] = -np.inf


def find_passages(scores: "Sequence[DocumentScores]", most: int = MOST, length: int = LENGTH) -> Passages:
    """Returns the most and the least expected passages of documents whose scores are all there."""
    finder = PassageFinder(most, length)
    for one in scores:
        finder.add(one)
    return finder.finish()
