"""What a text would cost without a model: the losses of its own token frequencies, in nats per token.

With c(b) the number of targets b, c(a, b) the number of targets b after a token a, and N all targets:

    uniform   ln V
    unigram   −Σ_b c(b) / N · ln (c(b) / N)
    bigram    −Σ_ab c(a, b) / N · ln (c(a, b) / Σ_b c(a, b))

The frequencies are those of the evaluated text itself, so no unigram or bigram table has a lower loss on it.
On a short text, where most pairs occur once, the bigram baseline would be far below what a bigram model of
other text reaches, so it is not given below `FEWEST_FOR_BIGRAM` targets.
"""

from dataclasses import dataclass, field

import numpy as np

from pellucid.data.shard import Ids
from pellucid.evaluation.documents import EncodedDocument

FEWEST_FOR_BIGRAM = 50_000
"""Targets from which on their own pairs say something of a bigram model."""
MOST_PENDING = 1 << 22
"""Pairs that are kept one by one before they are counted."""


@dataclass
class TokenCounts:
    """The counts of targets, and of pairs (token before, target), over some documents."""

    vocab_size: int
    pairs: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    """Different pairs, as before · vocab_size + target, ascending."""
    counts: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    _pending: list[Ids] = field(default_factory=list)
    _n_pending: int = 0

    def add(self, document: EncodedDocument) -> None:
        """Counts the counted targets of a document."""
        here = document.is_counted
        pairs = document.ids[:-1][here] * self.vocab_size + document.ids[1:][here]
        self._pending.append(pairs)
        self._n_pending += len(pairs)
        if self._n_pending > MOST_PENDING:
            self._merge()

    def _merge(self) -> None:
        found = [np.unique(pairs, return_counts=True) for pairs in self._pending]
        self._pending, self._n_pending = [], 0
        self._join([(self.pairs, self.counts), *found])

    def _join(self, parts: list[tuple[Ids, Ids]]) -> None:
        keys = np.concatenate([pairs for pairs, _ in parts])
        self.pairs, place = np.unique(keys, return_inverse=True)
        self.counts = np.zeros(len(self.pairs), np.int64)
        np.add.at(self.counts, place, np.concatenate([counts for _, counts in parts]))

    def add_counts(self, other: "TokenCounts") -> None:
        """Adds the counts of other documents."""
        self._merge()
        other._merge()
        self._join([(self.pairs, self.counts), (other.pairs, other.counts)])

    @property
    def uniform(self) -> float:
        return float(np.log(self.vocab_size))

    @property
    def unigram(self) -> float:
        self._merge()
        found = np.bincount(self.pairs % self.vocab_size, self.counts)
        found = found[found > 0]
        return float((found * np.log(found.sum() / found)).sum() / found.sum())

    @property
    def bigram(self) -> float:
        self._merge()
        before = self.pairs // self.vocab_size
        totals = np.bincount(before, self.counts)[before]
        return float((self.counts * np.log(totals / self.counts)).sum() / self.counts.sum())
