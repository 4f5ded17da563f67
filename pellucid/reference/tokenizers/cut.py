"""Cutting a text into words before merging, as GPT-2 does: a word keeps the space before it.

What is a letter is Unicode's to say, in the version that Python knows.
"""

import unicodedata
from collections.abc import Iterator

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def cut(text: str) -> Iterator[str]:
    """
    >>> list(cut("The cat's 2 mats,  then"))
    ['The', ' cat', "'s", ' 2', ' mats', ',', ' ', ' then']
    """
    at = 0
    while at < len(text):
        end = _end(text, at)
        yield text[at:end]
        at = end


def _end(text: str, at: int) -> int:
    for ending in CONTRACTIONS:
        if text.startswith(ending, at):
            return at + len(ending)
    start = at + (text[at] == " ")
    kind = _kind(text, start)
    if kind and kind != "space":
        return _run(text, start, kind)
    end = _run(text, at, "space")
    # the last space of a run belongs to the word that follows
    return end - 1 if end - at > 1 and end < len(text) else end


def _run(text: str, at: int, kind: str) -> int:
    while _kind(text, at) == kind:
        at += 1
    return at


def _kind(text: str, at: int) -> str:
    """letter, number, space or other; nothing past the end."""
    if at >= len(text):
        return ""
    if text[at].isspace() and text[at] not in "\x1c\x1d\x1e\x1f":
        return "space"
    category = unicodedata.category(text[at])[0]
    return {"L": "letter", "N": "number"}.get(category, "other")
