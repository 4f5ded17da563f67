"""What token files hold, in figures: lengths of documents, frequent tokens, a few documents."""

from dataclasses import dataclass

import numpy as np

from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens

PERCENTILES = (0, 10, 50, 90, 99, 100)
LOOKED_AT = 10_000_000
"""Tokens, or documents, from which frequencies are counted; of more, evenly spread ones stand for all."""
_RUN = 10_000


@dataclass(frozen=True)
class Statistics:
    percentiles: tuple[int, ...]
    """Tokens per document, at PERCENTILES."""
    frequent: tuple[tuple[int, float], ...]
    """Ids and their shares of the tokens, the most frequent first."""
    counted: int
    """How many tokens the shares come from."""


def statistics(tokens: Tokens, most: int = 12) -> Statistics:
    """Figures of one part; it must not be empty."""
    starts = _spread(len(tokens), LOOKED_AT)
    looked_at = np.concatenate([tokens.read(start, min(start + _RUN, len(tokens))) for start in starts])
    ids, counts = np.unique(looked_at, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    frequent = tuple((int(ids[i]), float(counts[i] / len(looked_at))) for i in order)
    # The nearest document, not a number between two: a length that a document has.
    lengths = np.percentile(_lengths(tokens), PERCENTILES, method="nearest")
    return Statistics(tuple(int(length) for length in lengths), frequent, len(looked_at))


def _lengths(tokens: Tokens) -> Ids:
    found = []
    for start in _spread(tokens.documents, LOOKED_AT):
        begins, ends = tokens.bounds(np.arange(start, min(start + _RUN, tokens.documents)))
        found.append(ends - begins)
    return np.concatenate(found)


def _spread(size: int, most: int) -> list[int]:
    """Where runs begin: all of them, or so many that at most `most` things are looked at."""
    runs = -(-size // _RUN)
    wanted = min(runs, most // _RUN)
    return [i * runs // wanted * _RUN for i in range(wanted)]
