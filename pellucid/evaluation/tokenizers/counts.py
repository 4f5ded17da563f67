"""Counts of a text under a tokenizer: tokens, unknown tokens, lost bytes, and the share of each script.

A byte of the text belongs to the script of its character. A token counts as one: where it covers characters
of several scripts, each script gets the share of the token's characters that are its own, and a character of
which the token has a part counts as that part. A token that covers no text counts for the character after it.
Bytes and tokens of the scripts therefore add up to those of the text.
"""

import unicodedata
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pellucid.text.tokenizer import Tokenizer

PREFIXES = {
    "LATIN": "Latin",
    "GREEK": "Greek",
    "CYRILLIC": "Cyrillic",
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Hiragana",
    "KATAKANA": "Katakana",
    "HANGUL": "Hangul",
    "ARABIC": "Arabic",
    "HEBREW": "Hebrew",
    "DEVANAGARI": "Devanagari",
    "THAI": "Thai",
}
"""The first word of a character's Unicode name, and the script that it means."""
WHITESPACE, DIGITS, PUNCTUATION, OTHER = "white space", "digits", "punctuation", "other"
SCRIPTS = (*dict.fromkeys(PREFIXES.values()), DIGITS, PUNCTUATION, WHITESPACE, OTHER)


def find_script(char: str) -> str:
    """Returns the script of a character, one of `SCRIPTS`.

    >>> [find_script(char) for char in "aé猫7$ ☺"]
    ['Latin', 'Latin', 'Han', 'digits', 'punctuation', 'white space', 'other']
    """
    if char.isspace():
        return WHITESPACE
    category = unicodedata.category(char)
    if category[0] == "N":
        return DIGITS
    if category[0] == "P" or category in ("Sm", "Sc", "Sk"):
        return PUNCTUATION
    words = unicodedata.name(char, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")
    return PREFIXES.get(words[0], OTHER)


@cache
def _number(code: int) -> int:
    return SCRIPTS.index(find_script(chr(code)))


def number_scripts(text: str) -> NDArray[np.uint8]:
    """Returns the place in `SCRIPTS` of the script of each character, [n]."""
    codes, places = np.unique(np.frombuffer(text.encode("utf-32-le"), "<u4"), return_inverse=True)
    return np.array([_number(code) for code in codes.tolist()], np.uint8)[places]


def count_utf8_bytes(text: str) -> NDArray[np.int64]:
    """Returns the number of UTF-8 bytes of each character, [n].

    >>> count_utf8_bytes("aé猫").tolist()
    [1, 2, 3]
    """
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    return 1 + np.searchsorted([0x80, 0x800, 0x10000], codes, side="right")


Counts = NDArray[np.float64]
Spans = NDArray[np.int64]
"""The first byte and the end of each token in the text, [token 2]."""
BLOCK = 1 << 18
"""Tokens whose bytes are looked at together."""


@dataclass(frozen=True, eq=False)
class TokenizationCounts:
    """Counts of one or more texts; those of two are added with +."""

    documents: int
    bytes: int
    """UTF-8 bytes of the text."""
    tokens: int
    script_bytes: Counts
    """Bytes of each script of `SCRIPTS`; their sum is `bytes`."""
    script_tokens: Counts
    """Tokens of each script, of which a token may be shared; their sum is `tokens`."""
    unknown: int
    """Unknown tokens."""
    lost_bytes: int
    """Bytes of the text that only an unknown token covers, or no token."""
    single_bytes: int
    """Tokens of a single byte: an ASCII character, or a byte of a longer character."""
    partial_characters: int
    """Tokens that begin or end inside a character, such as those of byte fallback."""
    exact_documents: int
    """Documents that decode(encode(text)) returns exactly."""
    refused_documents: int = 0
    """Documents that the tokenizer refuses, since it has no unknown token for what it lacks."""

    def __add__(self, other: "TokenizationCounts") -> "TokenizationCounts":
        return TokenizationCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens if self.tokens else np.nan

    @property
    def script_bytes_per_token(self) -> Counts:
        """Bytes per token of each script, [script]; NaN where no token covers one of its characters."""
        found = np.full(len(SCRIPTS), np.nan)
        np.divide(self.script_bytes, self.script_tokens, out=found, where=self.script_tokens > 0)
        return found


NOTHING = TokenizationCounts(0, 0, 0, np.zeros(len(SCRIPTS)), np.zeros(len(SCRIPTS)), 0, 0, 0, 0, 0)


def count_tokens(tokenizer: Tokenizer, text: str) -> TokenizationCounts:
    """Returns the counts of one document.

    >>> from pellucid.text.word_level import CharacterTokenizer
    >>> found = count_tokens(CharacterTokenizer(tuple("aé7")), "aé7")
    >>> found.tokens, found.bytes, found.script_bytes[SCRIPTS.index("Latin")].item()
    (3, 4, 3.0)
    """
    ids, spans = tokenizer.encode_spans(text)
    sizes = count_utf8_bytes(text)
    total = int(sizes.sum())
    scripts = np.repeat(number_scripts(text), sizes)
    is_unknown = ids == (-1 if tokenizer.unknown_id is None else tokenizer.unknown_id)
    is_byte = np.isin(ids, list(tokenizer.byte_tokens))
    return TokenizationCounts(
        documents=1,
        bytes=total,
        tokens=len(ids),
        script_bytes=np.bincount(scripts, minlength=len(SCRIPTS)).astype(np.float64),
        script_tokens=_share_tokens(spans, scripts, np.repeat(1 / sizes, sizes)),
        unknown=int(is_unknown.sum()),
        lost_bytes=total - _count_covered(spans[~is_unknown], total),
        single_bytes=int(((spans[:, 1] - spans[:, 0] == 1) | is_byte).sum()),
        partial_characters=int((_is_inside_a_character(sizes)[spans].any(axis=1) | is_byte).sum()),
        exact_documents=int(tokenizer.decode(ids.tolist()) == text),
    )


def _share_tokens(spans: Spans, scripts: NDArray[np.uint8], weights: Counts) -> Counts:
    """Returns the tokens of each script, [script]; `weights` is each byte's part of its character."""
    found = np.zeros(len(SCRIPTS))
    for first in range(0, len(spans), BLOCK):
        here = spans[first : first + BLOCK]
        starts = np.minimum(here[:, 0], len(scripts) - 1)
        lengths = np.maximum(here[:, 1] - starts, 1)
        owner = np.repeat(np.arange(len(here)), lengths)
        places = np.arange(len(owner)) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        characters = np.bincount(owner, weights[places])
        shares = weights[places] / characters[owner]
        found += np.bincount(scripts[places], shares, minlength=len(SCRIPTS))
    return found


def _count_covered(spans: Spans, total: int) -> int:
    """Returns how many of the bytes 0 to `total` lie in a span."""
    changes = np.bincount(spans[:, 0], minlength=total + 1) - np.bincount(spans[:, 1], minlength=total + 1)
    return int((np.cumsum(changes) > 0).sum())


def _is_inside_a_character(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns whether a cut before each byte, or at the end, would divide a character, [bytes + 1]."""
    is_inside = np.ones(int(sizes.sum()) + 1, bool)
    is_inside[np.concatenate(([0], np.cumsum(sizes)))] = False
    return is_inside
