"""Whole words to ids and back."""

import pytest

from pellucid.base.errors import TokenError
from pellucid.text.word_level import WordTokenizer

WORDS = WordTokenizer(("the", "cat", "sat"))


def test_words_survive_the_round_trip() -> None:
    assert WORDS.encode("  the cat\nthe ") == [0, 1, 0]
    assert WORDS.decode([0, 1, 0]) == "the cat the"
    assert WORDS.encode("") == []
    assert WORDS.vocab_size == 3


def test_an_unknown_word_is_named_with_what_is_known() -> None:
    with pytest.raises(
        TokenError,
        match="'cats'",
    ):
        WORDS.encode("the cats")


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(TokenError, match=r"id 3;.*0 to 2"):
        WORDS.decode([3])
