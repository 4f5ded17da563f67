"""Byte-pair encoding: join the two neighbours that were joined earliest in training, until none are left.

Training counts all neighbours in all words and joins the most frequent pair, again and again; the order of
those joins is all that is learned.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

Pair = tuple[bytes, bytes]


class Merge(NamedTuple):
    """One join: its rank, what was joined, and the word after it."""

    rank: int
    pair: Pair
    pieces: tuple[bytes, ...]


def encode(word: bytes, ranks: Mapping[Pair, int]) -> tuple[tuple[bytes, ...], list[Merge]]:
    """The pieces of a word, and the joins that led to them.

    >>> encode(b"hat", {(b"a", b"t"): 0, (b"h", b"at"): 1})[0]
    (b'hat',)
    """
    pieces = tuple(word[i : i + 1] for i in range(len(word)))
    merges = []
    while pairs := [pair for pair in pairwise(pieces) if pair in ranks]:
        pair = min(pairs, key=ranks.__getitem__)
        pieces = joined(pieces, pair)
        merges.append(Merge(ranks[pair], pair, pieces))
    return pieces, merges


def joined(pieces: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    """Every occurrence of the pair joined, from the left."""
    result: list[bytes] = []
    at = 0
    while at < len(pieces):
        together = pieces[at : at + 2] == pair
        result.append(pair[0] + pair[1] if together else pieces[at])
        at += 2 if together else 1
    return tuple(result)


def train(words: Mapping[bytes, int], alphabet: list[bytes], merges: int) -> list[Pair]:
    """The joins learned from words with their counts.

    Of pairs that are equally frequent, the one with the earlier tokens is joined: first the alphabet in its
    order, then each join.
    """
    order = {letter: i for i, letter in enumerate(alphabet)}
    split = {word: tuple(word[i : i + 1] for i in range(len(word))) for word in words}
    learned: list[Pair] = []
    while len(learned) < merges:
        counts: Counter[Pair] = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], order[pair[0]], order[pair[1]]))
        learned.append(best)
        order.setdefault(best[0] + best[1], len(order))
        split = {word: joined(pieces, best) for word, pieces in split.items()}
    return learned
