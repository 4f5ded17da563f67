"""WordPiece: from the left, always the longest known piece; pieces inside a word are written with a mark."""

from collections.abc import Container


def encode(
    word: str, vocabulary: Container[str], unknown: str, mark: str = "##", longest: int = 100
) -> list[str]:
    """The pieces of a word, or the one unknown token where some rest of it begins with no known piece.

    >>> encode("unable", {"un", "##able", "##a"}, "[UNK]")
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
