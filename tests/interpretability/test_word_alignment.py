"""A word's tokens cover its characters, and each of them shares one with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import UsageError
from pellucid.data.generated.stories import stories, words_of
from pellucid.interpretability.word_alignment import find_word_tokens
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer

STORIES = [story.text for story in stories("easy", seed=3, count=20)]
LETTERS = "aé猫🙂'-. \"\n"
TOKENIZERS = {
    kind: train(kind, [*STORIES, LETTERS], 500)
    for kind in ("bpe", "bytes", "unigram", "words", "characters", "wordpiece")
}


def check_cover(tokenizer: Tokenizer, text: str) -> None:
    """Asserts that each byte of a word is in one of its tokens, and that no other token shares a byte."""
    spans, words = tokenizer.offsets(text), words_of(text)
    at = 0
    for word, tokens in zip(words, find_word_tokens(tokenizer, text, words), strict=True):
        place = text.index(word, at)
        start, at = len(text[:place].encode()), place + len(word)
        here = set(range(start, start + len(word.encode())))
        sharing = [i for i, span in enumerate(spans) if here & set(range(*span))]
        assert list(tokens) == sharing
        assert here <= {byte for i in tokens for byte in range(*spans[i])}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_tokens_of_a_word_cover_its_characters(kind: str) -> None:
    for text in STORIES[:5]:
        check_cover(TOKENIZERS[kind], text)


@pytest.mark.parametrize("count", [60, pytest.param(5_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "characters"])
def test_the_tokens_of_a_word_cover_it_in_any_text(kind: str, count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(st.text(LETTERS + "bc"))
    def covers(text: str) -> None:
        if kind == "characters":
            text = text.replace("b", "a").replace("c", "a")
        check_cover(TOKENIZERS[kind], text)

    covers()


def test_a_token_may_belong_to_two_words_and_a_bos_token_moves_all() -> None:
    words = ["the", "cat", ".", "ran"]
    tokenizer = train("words", ["the cat. ran"], 50)
    assert find_word_tokens(tokenizer, "the cat. ran", words) == [
        range(1),
        range(1, 2),
        range(1, 2),
        range(2, 3),
    ]
    assert find_word_tokens(tokenizer, "the cat.", words[:2], n_before=1) == [range(1, 2), range(2, 3)]


def test_a_word_that_is_not_there_is_refused() -> None:
    for words in (["b"], ["a", "a"], [""]):
        with pytest.raises(UsageError):
            find_word_tokens(TOKENIZERS["bpe"], "a", words)
    assert find_word_tokens(TOKENIZERS["bpe"], "", []) == []
