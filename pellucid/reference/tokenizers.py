"""Tokenizer algorithms, step by step: the readable twins of the fast ones."""

import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from itertools import pairwise
from typing import AnyStr, Generic, NamedTuple

# ---- Pretokenization as in GPT-2: a text is split into words before any merge, each with the space before
# it. Letters and numbers are those of Python's version of Unicode.

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def pretokenize(text: str) -> Iterator[str]:
    """Yields the words of a text.

    >>> list(pretokenize("The cat's 2 mats,  then"))
    ['The', ' cat', "'s", ' 2', ' mats', ',', ' ', ' then']
    """
    at = 0
    while at < len(text):
        end = _end(text, at)
        yield text[at:end]
        at = end


def _end(text: str, at: int) -> int:
    """Returns the end of the word that starts at `at`."""
    for ending in CONTRACTIONS:
        if text.startswith(ending, at):
            return at + len(ending)
    start = at + (text[at] == " ")
    kind = _kind(text, start)
    if kind and kind != "space":
        return _run(text, start, kind)
    end = _run(text, at, "space")
    # the last space of a run belongs to the next word
    return end - 1 if end - at > 1 and end < len(text) else end


def _run(text: str, at: int, kind: str) -> int:
    """Returns the end of the run of characters of one kind."""
    while _kind(text, at) == kind:
        at += 1
    return at


def _kind(text: str, at: int) -> str:
    """Returns letter, number, space or other; empty past the end."""
    if at >= len(text):
        return ""
    if text[at].isspace() and text[at] not in "\x1c\x1d\x1e\x1f":
        return "space"
    category = unicodedata.category(text[at])[0]
    return {"L": "letter", "N": "number"}.get(category, "other")


# ---- Byte-pair encoding: merge the adjacent pair of lowest rank, until no pair has a rank. Training counts
# the adjacent pairs of all words and merges the most frequent one, again and again; the order of the merges,
# their rank, is all that is learned.

Pair = tuple[bytes, bytes]


class Merge(NamedTuple, Generic[AnyStr]):
    """One merge: its rank, the pair, and the pieces of the word after it."""

    rank: int
    pair: tuple[AnyStr, AnyStr]
    pieces: tuple[AnyStr, ...]


def encode_bpe(
    word: AnyStr, ranks: Mapping[tuple[AnyStr, AnyStr], int]
) -> tuple[tuple[AnyStr, ...], list[Merge[AnyStr]]]:
    """Returns the pieces of a word of bytes or characters, and the merges that led to them.

    >>> encode_bpe(b"hat", {(b"a", b"t"): 0, (b"h", b"at"): 1})[0]
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


def train_bpe(words: Mapping[bytes, int], alphabet: list[bytes], merges: int) -> list[Pair]:
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


# ---- Unigram: of all segmentations of a word into known pieces, the most probable one. The scores are
# log-probabilities, so the best segmentation has the largest sum; Viterbi's algorithm finds it by keeping the
# best score up to each position.


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


# ---- WordPiece: from the left, the longest known piece each time; pieces inside a word have a prefix, ##.


def encode_wordpiece(
    word: str, vocabulary: Container[str], unknown: str, mark: str = "##", longest: int = 100
) -> list[str]:
    """Returns the pieces of a word, or the unknown token where no known piece fits.

    >>> encode_wordpiece("unable", {"un", "##able", "##a"}, "[UNK]")
    ['un', '##able']
    """
    if len(word) > longest:
        return [unknown]
    pieces: list[str] = []
    at = 0
    while at < len(word):
        prefix = mark if at else ""
        end = next((e for e in range(len(word), at, -1) if prefix + word[at:e] in vocabulary), None)
        if end is None:
            return [unknown]
        pieces.append(prefix + word[at:end])
        at = end
    return pieces
