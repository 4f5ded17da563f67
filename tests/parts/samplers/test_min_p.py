"""Min-p: as in transformers, and by hand."""

import math

import pytest
import torch
from transformers import MinPLogitsWarper

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.min_p import MinP
from tests.parts.samplers.rows import agree, apply, check_twin, kept, logits_of, many, random_rows


@many
@pytest.mark.parametrize("p", [0.0, 0.05, 0.7])
def test_the_scores_are_those_of_transformers(count: int, p: float) -> None:
    rows = random_rows(count)
    agree(apply(MinP(p), rows), MinPLogitsWarper(p)(torch.zeros(count, 1), rows))


def test_the_tape_computes_the_same() -> None:
    check_twin(MinP(0.1), random_rows(30))


def test_a_token_half_as_probable_as_the_first_is_kept_at_one_half() -> None:
    row = logits_of(0.5, 0.25, 0.2, 0.05)
    assert kept(apply(MinP(0.49), row)) == [0, 1]
    assert kept(apply(MinP(0.1), row)) == [0, 1, 2, 3]
    assert kept(apply(MinP(0.11), row)) == [0, 1, 2]


def test_one_keeps_the_most_probable_tokens_alone() -> None:
    assert kept(apply(MinP(1.0), [1.0, 3.0, 3.0, -math.inf])) == [1, 2]


def test_more_than_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        MinP(1.1)
