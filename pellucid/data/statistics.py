"""Statistics of token files: lengths of documents, and the most frequent tokens."""

from dataclasses import dataclass

import numpy as np

from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens

PERCENTILES = (0, 10, 50, 90, 99, 100)
SAMPLED = 10_000_000
"""Tokens, or documents, that are counted; of more, an evenly spaced sample."""
_RUN = 10_000


@dataclass(frozen=True)
class Statistics:
    percentiles: tuple[int, ...]
    """Tokens per document, at PERCENTILES."""
    frequent: tuple[tuple[int, float], ...]
    """Ids and their fractions of the tokens, the most frequent first."""
    counted: int
    """Tokens that were counted."""


def compute_statistics(tokens: Tokens, most: int = 12) -> Statistics:
    """Returns the statistics of one part, which must not be empty."""
    starts = _spaced_starts(len(tokens), SAMPLED)
    sampled = np.concatenate([tokens.read(start, min(start + _RUN, len(tokens))) for start in starts])
    ids, counts = np.unique(sampled, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    frequent = tuple((int(ids[i]), float(counts[i] / len(sampled))) for i in order)
    # method=nearest: a length that a document has, not one between two.
    lengths = np.percentile(_lengths(tokens), PERCENTILES, method="nearest")
    return Statistics(tuple(int(length) for length in lengths), frequent, len(sampled))


def _lengths(tokens: Tokens) -> Ids:
    found = []
    for start in _spaced_starts(tokens.documents, SAMPLED):
        begins, ends = tokens.bounds(np.arange(start, min(start + _RUN, tokens.documents)))
        found.append(ends - begins)
    return np.concatenate(found)


def _spaced_starts(size: int, most: int) -> list[int]:
    """Returns where runs of `_RUN` begin: all of them, or as many, evenly spaced, as hold `most` items."""
    runs = -(-size // _RUN)
    wanted = min(runs, most // _RUN)
    return [i * runs // wanted * _RUN for i in range(wanted)]
