"""Tokens are listed by their texts, and a token's number is the same wherever it stands."""

import asyncio
import json

import pytest

from pellucid.generation.answers.lines import ScoredToken
from pellucid.generation.answers.logprobs import (
    LogprobsTable,
    TokenTexts,
    encode_logprobs,
    join_logprobs,
    make_chat_logprobs,
    make_completion_logprobs,
)
from tests.evaluation.small_models import bpe

TOKENIZER = bpe()
TEXTS = TokenTexts(TOKENIZER)


def find_id(data: bytes) -> int:
    return next(id for id in range(TOKENIZER.vocab_size) if TOKENIZER.bytes_of(id) == data)


def test_a_token_of_whole_characters_is_its_text_and_any_other_its_bytes() -> None:
    assert TEXTS[find_id(b"a")] == "a" and TEXTS[find_id(b"\xe2")] == "bytes:\\xe2"
    assert [TEXTS[id] for id in TOKENIZER.encode("▖")] == ["bytes:\\xe2", "bytes:\\x96", "bytes:\\x96"]
    assert TEXTS[0] == "<end>"
    assert len({TEXTS[id] for id in range(TOKENIZER.vocab_size)}) == TOKENIZER.vocab_size


def test_an_id_without_a_token_has_its_number_for_a_text() -> None:
    assert TEXTS[TOKENIZER.vocab_size] == f"#{TOKENIZER.vocab_size}" and TokenTexts(None)[7] == "#7"
    assert TEXTS.get_bytes(TOKENIZER.vocab_size) is None and TokenTexts(None).get_bytes(7) is None


def test_the_chosen_token_is_among_the_most_probable_ones_with_the_same_number() -> None:
    a, b, c = map(find_id, (b"a", b"b", b"c"))
    tokens = [
        ScoredToken(a, 0),
        ScoredToken(b, 1, -0.1, ((b, -0.1), (c, -3.0))),
        ScoredToken(a, 2, -9.0, ((b, -0.5), (c, -1.0))),
        ScoredToken(c, 3, -2.0),
    ]
    found = make_completion_logprobs(TEXTS, tokens, 10)
    assert found["tokens"] == ["a", "b", "a", "c"] and found["text_offset"] == [10, 11, 12, 13]
    assert found["token_logprobs"] == [None, -0.1, -9.0, -2.0]
    assert found["top_logprobs"] == [
        None,
        {"b": -0.1, "c": -3.0},
        {"b": -0.5, "c": -1.0, "a": -9.0},
        {"c": -2.0},
    ]


def test_of_two_tokens_with_one_text_the_chosen_one_has_the_key() -> None:
    texts = TokenTexts(None)
    texts.update({1: "x", 2: "x", 3: "y"})
    chosen = make_completion_logprobs(texts, [ScoredToken(2, 0, -2.0, ((1, -0.5), (2, -2.0)))], 0)
    assert chosen["top_logprobs"] == [{"x": -2.0}]
    other = make_completion_logprobs(texts, [ScoredToken(3, 0, -4.0, ((1, -0.5), (2, -2.0)))], 0)
    assert other["top_logprobs"] == [{"x": -0.5, "y": -4.0}]


def test_offsets_of_tokens_before_the_text_are_its_beginning() -> None:
    found = make_completion_logprobs(TEXTS, [ScoredToken(0, 0), ScoredToken(5, 5, -1.0)], -5)
    assert found["text_offset"] == [0, 0]


def test_the_form_of_a_chat_has_the_bytes_of_every_token() -> None:
    half = find_id(b"\xe2")
    token = ScoredToken(half, 0, -1.0, ((find_id(b"a"), -0.5), (half, -1.0)))
    assert make_chat_logprobs(TEXTS, [token], 0)["content"] == [
        {
            "token": "bytes:\\xe2",
            "logprob": -1.0,
            "bytes": [0xE2],
            "top_logprobs": [
                {"token": "a", "logprob": -0.5, "bytes": [97]},
                {"token": "bytes:\\xe2", "logprob": -1.0, "bytes": [0xE2]},
            ],
        }
    ]


@pytest.mark.parametrize("parts", [[], [{"a": [], "b": []}], [{"a": [1], "b": [None]}, {"a": [], "b": []}]])
def test_parts_are_one_table_in_json_too(parts: list[LogprobsTable]) -> None:
    assert json.loads(asyncio.run(encode_logprobs(parts))) == join_logprobs(parts)
