"""Counts of a tokenizer on a text: bytes and tokens of the scripts add up to those of the text."""

import sys
import unicodedata
from functools import cache

import numpy as np
import pytest

from pellucid.evaluation.tokenizers.counts import (
    NOTHING,
    SCRIPTS,
    count_tokens,
    count_utf8_bytes,
    find_script,
    number_scripts,
)
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer
from tests.text.sample_texts import STORY, strings

KINDS = ("bytes", "characters", "words", "bpe", "unigram", "wordpiece")


@cache
def learn(kind: str) -> Tokenizer:
    found = train(kind, [STORY], 300)
    return found.with_unknown() if isinstance(found, CharacterTokenizer) else found


def by_script(values: object) -> dict[str, float]:
    return {name: value for name, value in zip(SCRIPTS, np.asarray(values).tolist(), strict=True) if value}


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_tokens_of_the_scripts_add_up_for_any_text(kind: str) -> None:
    tokenizer, total = learn(kind), NOTHING
    texts = [text for text in [STORY[:700], *strings(60, seed=1)] if text]
    for text in texts:
        found = count_tokens(tokenizer, text)
        ids, spans = tokenizer.encode_spans(text)
        assert ids.tolist() == tokenizer.encode(text) and [*map(tuple, spans)] == tokenizer.offsets(text)
        assert found.bytes == len(text.encode()) == found.script_bytes.sum()
        assert found.tokens == len(tokenizer.encode(text))
        assert found.script_tokens.sum() == pytest.approx(found.tokens, rel=1e-12)
        assert (found.script_tokens[found.script_bytes == 0] == 0).all()
        assert 0 <= found.lost_bytes <= found.bytes
        assert found.exact_documents == (tokenizer.decode(tokenizer.encode(text)) == text)
        total += found
    assert total.documents == len(texts)
    assert total.bytes == total.script_bytes.sum() == sum(len(text.encode()) for text in texts)


def test_a_token_of_two_scripts_is_shared_by_characters() -> None:
    """The token " cat" is one quarter white space and three quarters Latin."""
    tokenizer = train("bpe", [" cat cat cat cat"], 262)
    text = " cat cat"
    assert len(tokenizer.encode(text)) == 2
    found = count_tokens(tokenizer, text)
    assert by_script(found.script_tokens) == {"Latin": 1.5, "white space": 0.5}
    assert by_script(found.script_bytes) == {"Latin": 6, "white space": 2}
    assert found.script_bytes_per_token[SCRIPTS.index("Latin")] == 4.0


def test_a_letter_of_two_bytes_counts_as_much_as_a_space() -> None:
    tokenizer = train("bpe", [" ж ж ж ж ж"], 262)
    found = count_tokens(tokenizer, " ж")
    assert found.tokens == 1
    assert by_script(found.script_tokens) == {"Cyrillic": 0.5, "white space": 0.5}


def test_bytes_of_a_character_are_tokens_of_its_script() -> None:
    found = count_tokens(learn("bytes"), "aж猫")
    assert by_script(found.script_tokens) == {"Latin": 1, "Cyrillic": 2, "Han": 3}
    assert (found.single_bytes, found.partial_characters) == (6, 5)
    assert (found.unknown, found.lost_bytes, found.exact_documents) == (0, 0, 1)


def test_an_unknown_token_loses_its_bytes() -> None:
    words = WordTokenizer(("<unk>", "the", "cat"), unknown="<unk>")
    found = count_tokens(words, "the кот cat")
    assert (found.tokens, found.unknown) == (3, 1)
    assert found.lost_bytes == 6 + 2  # the Cyrillic word, and two spaces that no token covers
    assert found.exact_documents == 0


def test_a_tokenizer_without_an_unknown_token_can_be_given_one() -> None:
    plain = CharacterTokenizer(("a", "b", "<unk>"))
    complete = plain.with_unknown()
    assert complete.encode("ab") == plain.encode("ab")
    assert complete.vocab_size == plain.vocab_size + 1
    assert count_tokens(complete, "abc").unknown == 1
    assert complete.with_unknown() is complete


def test_nothing_is_counted_in_an_empty_text() -> None:
    found = count_tokens(learn("bpe"), "")
    assert (found.bytes, found.tokens, found.exact_documents) == (0, 0, 1)
    assert np.isnan(found.bytes_per_token)


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
