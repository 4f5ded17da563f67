"""Byte-pair encoding: merge the adjacent pair of lowest rank, until no pair has a rank.

Training counts the adjacent pairs of all words and merges the most frequent one, again and again; the order
of the merges, their rank, is all that is learned.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import AnyStr, Generic, NamedTuple

Pair = tuple[bytes, bytes]


class Merge(NamedTuple, Generic[AnyStr]):
    """One merge: its rank, the pair, and the pieces of the word after it."""

    rank: int
    pair: tuple[AnyStr, AnyStr]
    pieces: tuple[AnyStr, ...]


def encode(
    word: AnyStr, ranks: Mapping[tuple[AnyStr, AnyStr], int]
) -> tuple[tuple[AnyStr, ...], list[Merge[AnyStr]]]:
    """Returns the pieces of a word of bytes or characters, and the merges that led to them.

    >>> encode(b"hat", {(b"a", b"t"): 0, (b"h", b"at"): 1})[0]
    (b'hat',)
    """
    pieces = tuple(word[i : i + 1] for i in range(len(word)))
    merges = []
    while pairs := [pair for pair in pairwise(pieces) if pair in ranks]:
        pair = min(pairs, key=ranks.__getitem__)
        pieces = merge_pair(pieces, pair)
        merges.append(Merge(ranks[pair], pair, pieces))
    return pieces, merges


def merge_pair(pieces: tuple[AnyStr, ...], pair: tuple[AnyStr, AnyStr]) -> tuple[AnyStr, ...]:
    """Returns the pieces with every occurrence of the pair merged, from the left."""
    result: list[AnyStr] = []
    at = 0
    while at < len(pieces):
        is_pair = pieces[at : at + 2] == pair
        result.append(pair[0] + pair[1] if is_pair else pieces[at])
        at += 2 if is_pair else 1
    return tuple(result)


def train(words: Mapping[bytes, int], alphabet: list[bytes], merges: int) -> list[Pair]:
    """Returns the merges learned from words with their counts.

    Of equally frequent pairs, the one with the earlier tokens is merged: first the alphabet in its order,
    then each merge.
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
        split = {word: merge_pair(pieces, best) for word, pieces in split.items()}
    return learned
