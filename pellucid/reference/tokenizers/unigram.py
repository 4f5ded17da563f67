"""Unigram: of all ways to cut a word into known pieces, the one whose pieces are together most probable.

The scores are log-probabilities, so the best cut has the largest sum; Viterbi's algorithm finds it by
keeping, for every place in the word, only the best way to get there.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Edge(NamedTuple):
    """A known piece at its place in the word, and the best score of the word up to its end if it is used."""

    start: int
    end: int
    piece: str
    score: float
    total: float


def lattice(word: str, scores: Mapping[str, float]) -> list[Edge]:
    """Every known piece of the word, in the order of where it ends."""
    best = {0: 0.0}
    edges: list[Edge] = []
    for end in range(1, len(word) + 1):
        for start in range(end):
            piece = word[start:end]
            if piece in scores and start in best:
                edges.append(Edge(start, end, piece, scores[piece], best[start] + scores[piece]))
        totals = [edge.total for edge in edges if edge.end == end]
        if totals:
            best[end] = max(totals)
    return edges


def best_path(word: str, scores: Mapping[str, float]) -> list[Edge]:
    """The most probable cut; empty where no cut reaches the end.

    >>> [edge.piece for edge in best_path("abab", {"a": -2.0, "b": -2.0, "ab": -3.0})]
    ['ab', 'ab']
    """
    best: dict[int, Edge] = {}
    for edge in lattice(word, scores):
        if edge.end not in best or edge.total > best[edge.end].total:
            best[edge.end] = edge
    path: list[Edge] = []
    at = len(word)
    while at > 0:
        if at not in best:
            return []
        path.append(best[at])
        at = best[at].start
    return path[::-1]
