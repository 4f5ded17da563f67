"""WordPiece: from the left, the longest known piece each time; pieces inside a word have a prefix, ##."""

from collections.abc import Container


def encode(
    word: str, vocabulary: Container[str], unknown: str, mark: str = "##", longest: int = 100
) -> list[str]:
    """Returns the pieces of a word, or the unknown token where no known piece fits.

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
