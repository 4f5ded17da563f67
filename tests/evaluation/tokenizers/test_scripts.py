"""The script of a character: by category first, then by the first word of its Unicode name."""

import sys
import unicodedata

import numpy as np
import pytest

from pellucid.evaluation.tokenizers.scripts import SCRIPTS, count_utf8_bytes, find_script, number_scripts
from tests.text.sample_texts import strings

EXAMPLES = {
    "Latin": "aZéßŁａ",
    "Greek": "Ωμ",
    "Cyrillic": "жЯ",
    "Han": "王々",
    "Hiragana": "は",
    "Katakana": "カｶ",
    "Hangul": "한ᄀ",
    "Arabic": "ع",
    "Hebrew": "ש",
    "Devanagari": "हि",
    "Thai": "ไก่",
    "digits": "7²٣Ⅷ",
    "punctuation": ".,“।؟+$^",
    "white space": " \n\t\u3000",
    "other": "🐈\u0301\u200d\x00",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_characters_of_each_script(script: str) -> None:
    assert [find_script(char) for char in EXAMPLES[script]] == [script] * len(EXAMPLES[script])


def test_every_character_of_unicode_has_a_script() -> None:
    sample = [chr(code) for code in range(0, sys.maxunicode + 1, 97) if not 0xD800 <= code < 0xE000]
    assert {find_script(char) for char in sample} <= set(SCRIPTS)
    assert unicodedata.name("王").startswith("CJK")  # the name that the rule reads


def test_the_numbers_of_a_text_are_those_of_its_characters() -> None:
    for text in strings(50, seed=3):
        assert [SCRIPTS[i] for i in number_scripts(text)] == [find_script(char) for char in text]
        assert np.array_equal(count_utf8_bytes(text), [len(char.encode()) for char in text])
