"""Divides a text into words and punctuation marks, and joins them."""

import re
from collections.abc import Iterable

_TOKEN = re.compile(r"'s\b|[A-Za-z]+(?:-[A-Za-z]+)*|[^\sA-Za-z]")


def words_of(text: str) -> list[str]:
    """
    >>> words_of('"Look, Anna\\'s red-hot tea!"')
    ['"', 'Look', ',', 'Anna', "'s", 'red-hot', 'tea', '!', '"']
    """
    return _TOKEN.findall(text)


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
