"""Typical sampling: as in transformers, and by hand."""

import math

import pytest
import torch
from transformers import TypicalLogitsWarper

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.typical_p import TypicalP
from tests.parts.samplers.rows import V, agree, apply, check_twin, kept, logits_of, many, random_rows


@many
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_scores_are_those_of_transformers(count: int, p: float) -> None:
    """Of tokens equally far from the entropy, transformers keeps all, and we the smallest set."""
    rows = random_rows(count) + torch.arange(V) * -1e-6
    agree(apply(TypicalP(p), rows), TypicalLogitsWarper(p)(torch.zeros(count, 1), rows))


def test_the_tape_computes_the_same() -> None:
    check_twin(TypicalP(0.6), random_rows(30))


def test_the_most_probable_token_may_be_removed() -> None:
    """Shares ½, ¼ and two of ⅛: surprisals 1, 2, 3, 3 bits, entropy 1¾ bits, and ¼ is nearest to it."""
    row = logits_of(0.5, 0.25, 0.125, 0.125)
    assert kept(apply(TypicalP(0.2), row)) == [1]
    assert kept(apply(TypicalP(0.26), row)) == [0, 1]
    assert kept(apply(TypicalP(0.76), row)) == [0, 1, 2]


def test_zero_keeps_one_token_and_one_keeps_all() -> None:
    assert kept(apply(TypicalP(0.0), logits_of(0.5, 0.25, 0.125, 0.125))) == [1]
    assert kept(apply(TypicalP(1.0), logits_of(0.5, 0.25, 0.25))) == [0, 1, 2]
    assert kept(apply(TypicalP(0.5), [-math.inf, 2.0, -math.inf])) == [1]


def test_more_than_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        TypicalP(1.5)
