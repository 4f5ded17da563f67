"""Tokens that a word of a text is in, by the characters that they share."""

from collections.abc import Sequence

import numpy as np

from pellucid.base.errors import UsageError, show
from pellucid.text.tokenizer import Tokenizer


def find_word_tokens(tokenizer: Tokenizer, text: str, words: Sequence[str], n_before: int = 0) -> list[range]:
    """Returns for each of the words, which occur in the text in this order, the positions of its tokens.

    A token belongs to a word where the two share a byte of the text: a word of several tokens has them all,
    one token may belong to two words (`cat.` of a tokenizer of words), and a character that the tokenizer
    drops has no token, so that a range can be empty. Position `n_before` is the first token of the text: 1
    behind a bos token.

    >>> from pellucid.text.word_level import CharacterTokenizer
    >>> find_word_tokens(CharacterTokenizer(tuple("ab ")), "ab b", ["ab", "b"], n_before=1)
    [range(1, 3), range(4, 5)]
    """
    spans = np.array(tokenizer.offsets(text), np.int64).reshape(-1, 2)
    starts, ends = (np.maximum.accumulate(side) for side in spans.T)
    found, at, n_bytes = [], 0, 0
    for word in words:
        place = text.find(word, at)
        if place < 0 or not word:
            raise UsageError(f"the word {show(word)} does not occur after character {at} of the text.")
        n_bytes += len(text[at:place].encode())
        end = n_bytes + len(word.encode())
        first, last = np.searchsorted(ends, n_bytes, "right"), np.searchsorted(starts, end, "left")
        found.append(range(n_before + int(first), n_before + max(int(first), int(last))))
        at, n_bytes = place + len(word), end
    return found
