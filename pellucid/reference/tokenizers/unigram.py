"""Unigram: of all segmentations of a word into known pieces, the most probable one.

The scores are log-probabilities, so the best segmentation has the largest sum; Viterbi's algorithm finds it
by keeping the best score up to each position.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Edge(NamedTuple):
    """A known piece at its position in the word, and the best score of the word up to its end with it."""

    start: int
    end: int
    piece: str
    score: float
    total: float


def lattice(word: str, scores: Mapping[str, float]) -> list[Edge]:
    """Returns every known piece of the word, by its end."""
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
    """Returns the most probable segmentation; empty where none reaches the end.

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
