"""A token of a setting may be named by its text."""

from typing import Any

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.generation.settings.token_names import resolve_tokens
from pellucid.text.standard import StandardTokenizer
from tests.formats.gguf.random_models import MANY_MERGES, tokenizer

ABCD = pellucid.load("abcd").tokenizer


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"banned_tokens": ["B", "0", 2]}, {"banned_tokens": [1, 0, 2]}),
        ({"forced_tokens": ["A B", "C"]}, {"forced_tokens": [0, 1, 2]}),
        ({"stop_ids": "B"}, {"stop_ids": [1]}),
        ({"logit_bias": {"A": 1.0, "2": -1.0}}, {"logit_bias": {0: 1.0, 2: -1.0}}),
        ({"temperature": 0.5, "stop": ["A"]}, {"temperature": 0.5, "stop": ["A"]}),
        ({"stop_ids": None, "banned_tokens": 3}, {"stop_ids": None, "banned_tokens": 3}),
    ],
)
def test_a_text_becomes_the_id_of_its_token(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert resolve_tokens(ABCD, given) == found


@pytest.mark.parametrize("text", ["A B", "zebra", ""])
def test_a_text_that_is_not_one_token_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="banned_tokens"):
        resolve_tokens(ABCD, {"banned_tokens": [text]})


def test_a_word_that_is_not_known_is_said_to_be_that() -> None:
    with pytest.raises(UsageError, match="vocabulary"):
        resolve_tokens(ABCD, {"logit_bias": {"zebra": 1.0}})


def test_a_model_without_a_tokenizer_takes_ids() -> None:
    assert resolve_tokens(None, {"banned_tokens": ["7"]}) == {"banned_tokens": [7]}
    with pytest.raises(UsageError, match="ids"):
        resolve_tokens(None, {"banned_tokens": ["A"]})


def test_a_special_token_is_named_as_it_is_and_a_blank_as_it_is_shown() -> None:
    found = tokenizer(MANY_MERGES)
    assert isinstance(found, StandardTokenizer)
    for name in found.special.names():
        assert resolve_tokens(found, {"stop_ids": [name]}) == {"stop_ids": [found.id_of(name)]}
    (space,) = found.encode(" ")
    assert resolve_tokens(found, {"banned_tokens": ["·", " "]}) == {"banned_tokens": [space, space]}
