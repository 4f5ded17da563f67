"""Chunks of a long text whose ids, joined, are the ids of the whole text.

GPT-2's pattern cuts words before anything is merged, and none of its words holds a letter followed by a
space: a space only begins a word, or stands among other white space. So between a letter and a space that is
followed by a letter there is always a border, in the whole text as in the first part alone (the only thing
that looks ahead is white space, and the first part ends with a letter). The ids of the parts, one after the
other, are the ids of the text. Single characters can be cut anywhere. Other tokenizers promise nothing of
the kind, and their documents are encoded whole.
"""

import re
from collections.abc import Iterator

from pellucid.text.standard import GPT2_SPLIT, StandardTokenizer
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import CharacterTokenizer

CHUNK = 1 << 19
"""Characters of a piece, about: small beside a core's memory, large beside the cost of handing it over."""

# \w without digits and underscores still holds numbers such as ², so isalpha is asked as well.
_BORDER = re.compile(r"[^\W\d_](?= [^\W\d_])")


def can_chunk(tokenizer: Tokenizer) -> bool:
    """Returns whether a text may be encoded chunk by chunk with this tokenizer."""
    if isinstance(tokenizer, StandardTokenizer):
        return tokenizer.split == GPT2_SPLIT
    return isinstance(tokenizer, CharacterTokenizer)


def chunks(text: str, size: int = CHUNK) -> Iterator[str]:
    """Yields chunks of at least this size, cut where no token crosses; joined they are the text.

    >>> list(chunks("one two 3 four", 2))
    ['one', ' two 3 four']
    """
    start = 0
    while len(text) - start > size:
        cut = _find_border(text, start + size - 1)
        if cut is None:
            break
        yield text[start:cut]
        start = cut
    yield text[start:] if start else text


def _find_border(text: str, after: int) -> int | None:
    for found in _BORDER.finditer(text, after):
        if text[found.start()].isalpha() and text[found.end() + 1].isalpha():
            return found.end()
    return None
