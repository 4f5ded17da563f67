"""Divides a text into words and punctuation marks, and joins them."""

import re
from collections.abc import Iterable

_WORD = r"'s\b|[A-Za-z]+(?:-[A-Za-z]+)*|[^\sA-Za-z]"
_TOKEN = re.compile(_WORD)
_SPACED = re.compile(rf" ?(?:{_WORD})|\s")


def words_of(text: str) -> list[str]:
    """
    >>> words_of('"Look, Anna\\'s red-hot tea!"')
    ['"', 'Look', ',', 'Anna', "'s", 'red-hot', 'tea', '!', '"']
    """
    return _TOKEN.findall(text)


def spaced_words_of(text: str) -> list[str]:
    """Returns the words and marks, each with the space before it; joined they are the text.

    >>> spaced_words_of("Anna had a ")
    ['Anna', ' had', ' a', ' ']
    """
    return _SPACED.findall(text)


def join(words: Iterable[str]) -> str:
    """Returns the text: marks and 's follow the word before without a space, as a word does an opening quote.

    >>> join(['"', 'Run', ',', '"', 'said', 'Tom', '.'])
    '"Run," said Tom.'
    """
    text, opened, glued = "", False, True
    for word in words:
        closes = word == '"' and opened
        if not (glued or closes or word in {".", ",", "!", "?", ";", ":", "'s"}):
            text += " "
        text += word
        glued = word == '"' and not opened
        opened ^= word == '"'
    return text
