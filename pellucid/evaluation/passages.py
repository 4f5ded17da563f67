"""The most and the least expected passages, chosen while documents are scored.

The counted targets of a document are divided into passages of nearly equal length, at most `LONGEST` tokens
each; those with the smallest and the largest loss are kept, of equal texts one. A passage of fewer than
`SHORT` tokens, such as a heading, is kept only where there are not enough longer ones.
"""

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pellucid.evaluation.result import Passage
from pellucid.evaluation.scoring import DocumentScores

LONGEST, SHORT = 48, 12
BEFORE = 24
"""Tokens before a passage that are kept with it."""
COUNT = 5
"""Passages of either kind."""

RankedPassage = tuple[tuple[bool, float], int, Passage]
"""What it is ranked by, whether it is long and then its loss; minus its number; and the passage."""
Ranked = list[RankedPassage]
"""A heap, the lowest entry first."""


class ExtremePassages:
    """The passages with the largest and the smallest loss of all documents that were added."""

    def __init__(self, show_token: Callable[[int], str], count: int = COUNT) -> None:
        self.show_token, self.count = show_token, count
        self._largest, self._smallest = Ranked(), Ranked()
        self._added = 0

    def add(self, scores: DocumentScores) -> None:
        size = len(scores.nll)
        borders = np.linspace(0, size, -(-size // LONGEST) + 1).round().astype(int)
        for first, last in pairwise(borders.tolist()):
            loss = float(scores.nll[first:last].mean())
            self._added += 1
            for kept, value in ((self._largest, loss), (self._smallest, -loss)):
                key = last - first >= SHORT, value
                if len(kept) < self.count or key > kept[0][0]:
                    self._keep(kept, (key, -self._added, self._make_passage(scores, first, last)))

    def _keep(self, kept: Ranked, entry: RankedPassage) -> None:
        """Adds an entry in place of one with the same text, or of the lowest where there are enough."""
        same = next((i for i, other in enumerate(kept) if other[2].tokens == entry[2].tokens), None)
        if same is None:
            (heapq.heappush if len(kept) < self.count else heapq.heapreplace)(kept, entry)
        elif entry > kept[same]:
            kept[same] = entry
            heapq.heapify(kept)

    def _make_passage(self, scores: DocumentScores, first: int, last: int) -> Passage:
        start = int(np.flatnonzero(scores.document.is_counted)[first]) + 1
        before = scores.document.ids[max(0, start - BEFORE) : start]
        return Passage(
            scores.name,
            first,
            tuple(map(self.show_token, before.tolist())),
            tuple(map(self.show_token, scores.targets[first:last].tolist())),
            tuple(scores.nll[first:last].tolist()),
            tuple(scores.rank[first:last].tolist()),
        )

    @property
    def least_expected(self) -> tuple[Passage, ...]:
        """The largest losses, the largest first."""
        return tuple(
            passage for *_, passage in sorted(self._largest, key=lambda entry: entry[:2], reverse=True)
        )

    @property
    def most_expected(self) -> tuple[Passage, ...]:
        """The smallest losses, the smallest first."""
        return tuple(
            passage for *_, passage in sorted(self._smallest, key=lambda entry: entry[:2], reverse=True)
        )
