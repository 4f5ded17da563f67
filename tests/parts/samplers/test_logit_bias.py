"""Logit bias: as transformers' bias of single tokens, and from JSON."""

from typing import Any

import pytest
import torch
from transformers import SequenceBiasLogitsProcessor

from pellucid.base.errors import ConfigError, TokenError
from pellucid.parts.samplers import Sampler
from pellucid.parts.samplers.logit_bias import LogitBias
from tests.parts.samplers.rows import agree, apply, check_twin, many, random_rows

BIAS = {3: 1.5, 0: -2.0, 17: 30.0}


@many
def test_the_scores_are_those_of_transformers(count: int) -> None:
    rows = random_rows(count)
    theirs = SequenceBiasLogitsProcessor([[[id], bias] for id, bias in BIAS.items()])
    agree(apply(LogitBias(BIAS), rows), theirs(torch.zeros(count, 1, dtype=torch.int64), rows))


def test_the_tape_computes_the_same() -> None:
    check_twin(LogitBias(BIAS), random_rows(30))


def test_a_number_is_added_to_each_named_token() -> None:
    assert apply(LogitBias({0: 1.0, 2: -100.0}), [1.0, 2.0, 3.0]).tolist() == [2, 2, -97]


def test_the_ids_of_a_json_table_are_texts() -> None:
    assert Sampler.read({"kind": "logit_bias", "logit_bias": {"3": 1}}) == LogitBias({3: 1.0})
    assert Sampler.read(LogitBias({3: 1.0}).to_dict()) == LogitBias({3: 1.0})


@pytest.mark.parametrize(
    "bias", [3, {"a": 1.0}, {-1: 1.0}, {1: "2"}, {1: float("inf")}, {1: float("nan")}, {True: 1}]
)
def test_what_is_not_a_table_of_numbers_is_refused(bias: Any) -> None:
    with pytest.raises(ConfigError, match=r"logit_bias.* must be .*not"):
        LogitBias(bias)


def test_a_token_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(TokenError, match="token 3"):
        apply(LogitBias({3: 1.0}), [0.0] * 3)
