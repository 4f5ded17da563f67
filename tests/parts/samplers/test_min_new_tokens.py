"""Minimum of new tokens: as in transformers, step by step."""

import pytest
import torch
from transformers import MinNewTokensLengthLogitsProcessor

from pellucid.parts.samplers.min_new_tokens import MinNewTokens
from tests.parts.samplers.rows import NEW, PROMPT, agree, apply, check_twin, kept, many, random_rows

STOPS = (5, 7)


@many
@pytest.mark.parametrize("least", [0, len(NEW), len(NEW) + 1, 100])
def test_the_scores_are_those_of_transformers(count: int, least: int) -> None:
    rows = random_rows(count)
    theirs = MinNewTokensLengthLogitsProcessor(len(PROMPT), least, list(STOPS), device="cpu")
    wanted = theirs(torch.tensor([[*PROMPT, *NEW]] * count), rows)
    agree(apply(MinNewTokens(least), rows, stop=STOPS), wanted)


def test_the_tape_computes_the_same() -> None:
    check_twin(MinNewTokens(9), random_rows(30), stop=STOPS)


def test_a_stop_token_is_possible_after_the_last_of_them() -> None:
    """Of two new tokens at least, the third may be a stop token."""
    for new, wanted in (([], [0, 2]), ([0], [0, 2]), ([0, 0], [0, 1, 2])):
        assert kept(apply(MinNewTokens(2), [0.0] * 3, new=new, stop=[1])) == wanted


def test_a_stop_token_that_the_model_does_not_have_is_passed_over() -> None:
    assert kept(apply(MinNewTokens(9), [0.0] * 3, stop=[1, 1000])) == [0, 2]
