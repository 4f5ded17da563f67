"""The bytes that a token adds to a text: for every kind of tokenizer, joined they are the decoded text."""

import random

import numpy as np
import pytest

from pellucid.generation.constraints.regex import compile_regex
from pellucid.generation.constraints.token_table import Columns, count_spelling, make_token_table
from pellucid.text import kinds
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer
from tests.generation.constraints.walks import TOKENIZERS


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_bytes_of_tokens_joined_are_the_decoded_text(kind: str) -> None:
    tokenizer, rng = TOKENIZERS[kind](), random.Random(0)
    tokens = make_token_table(tokenizer, tokenizer.vocab_size, frozenset())
    usable = [id for id, piece in enumerate(tokens.rest) if piece]
    for _ in range(20):
        ids = rng.choices(usable, k=rng.randint(1, 6))
        joined = tokens.first[ids[0]] + b"".join(tokens.rest[id] for id in ids[1:])
        assert joined.decode("utf-8", "replace") == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_special_token_an_excluded_one_and_a_row_without_a_token_have_no_bytes(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    last = tokenizer.vocab_size - 1
    tokens = make_token_table(tokenizer, tokenizer.vocab_size + 3, frozenset([last]))
    special = [tokenizer.id_of(name) for name in tokenizer.special.names()]
    assert not any(
        tokens.rest[id] or tokens.first[id] for id in [*special, last, *range(last + 1, last + 4)] if id
    )
    assert len(tokens.rest) == tokenizer.vocab_size + 3


def test_a_word_has_a_space_before_it_except_at_the_beginning() -> None:
    tokens = make_token_table(WordTokenizer(("A", "B")), 2, frozenset())
    assert (tokens.first, tokens.rest) == ((b"A", b"B"), (b" A", b" B"))
    assert not tokens.is_uniform
    assert make_token_table(CharacterTokenizer(("A", "é")), 2, frozenset()).is_uniform


def test_all_tokens_are_advanced_as_one_by_one() -> None:
    tokenizer = kinds.train("bpe", ["the cat sat on the mat"] * 20, 280)
    tokens = make_token_table(tokenizer, tokenizer.vocab_size, frozenset())
    automaton = compile_regex("(the|a|[^t]+){2,5}\n?.*")
    for state in range(len(automaton.table)):
        ids, after = Columns(tokens.rest).advance(automaton, state)
        wanted = {id: automaton.walk(state, piece) for id, piece in enumerate(tokens.rest) if piece}
        assert dict(zip(ids.tolist(), after.tolist(), strict=True)) == {
            i: s for i, s in wanted.items() if s >= 0
        }
        assert ids.dtype == np.int32


def test_a_spelling_has_the_fewest_tokens() -> None:
    spellings = frozenset([b"a", b"b", b"ab", b"bab"])
    assert [count_spelling(text, spellings, {}) for text in (b"", b"abab", b"abba", b"c")] == [
        0,
        2,
        3,
        np.inf,
    ]
