"""Top-k: as in transformers, ties and all."""

import math

import pytest
import torch
from transformers import TopKLogitsWarper

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.top_k import TopK
from tests.parts.samplers.rows import V, agree, apply, check_twin, kept, many, random_rows


@many
@pytest.mark.parametrize("k", [1, 5, V, V + 1, 10**12])
def test_the_scores_are_those_of_transformers(count: int, k: int) -> None:
    rows = random_rows(count)
    agree(apply(TopK(k), rows), TopKLogitsWarper(k)(torch.zeros(count, 1), rows))


def test_the_tape_computes_the_same() -> None:
    check_twin(TopK(4), random_rows(30))


def test_the_three_largest_of_five_are_kept() -> None:
    assert kept(apply(TopK(3), [0.1, 5.0, 2.0, -1.0, 3.0])) == [1, 2, 4]


def test_those_equal_to_the_last_are_kept_too() -> None:
    assert kept(apply(TopK(2), [1.0, 2.0, 2.0, 3.0, 0.0])) == [1, 2, 3]


def test_a_removed_token_stays_removed() -> None:
    assert kept(apply(TopK(3), [-math.inf, 1.0, -math.inf, -math.inf])) == [1]


def test_no_token_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        TopK(0)
