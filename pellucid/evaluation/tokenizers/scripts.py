"""The script of a character: Latin, Han, digits, white space and so on, by its category and its Unicode name.

White space comes first (`str.isspace`), then digits (category N), then punctuation (category P, and the
symbols of Sm, Sc and Sk, such as + $ and ^). Any other character belongs to the script whose name begins its
Unicode name, FULLWIDTH and HALFWIDTH omitted; combining marks, emoji and the rest are `other`.
"""

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

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
