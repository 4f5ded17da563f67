"""Pretokenization as in GPT-2: a text is split into words before any merge, each with the space before it.

Letters and numbers are those of Python's version of Unicode.
"""

import unicodedata
from collections.abc import Iterator

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
