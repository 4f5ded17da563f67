"""Repetition penalty: as in transformers, over the prompt and the new tokens."""

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.repetition_penalty import RepetitionPenalty
from tests.parts.samplers.rows import NEW, PROMPT, agree, apply, check_twin, many, random_rows


@many
@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_the_scores_are_those_of_transformers(count: int, penalty: float) -> None:
    rows = random_rows(count)
    ids = torch.tensor([[*PROMPT, *NEW]] * count)
    agree(
        apply(RepetitionPenalty(penalty), rows), RepetitionPenaltyLogitsProcessor(penalty)(ids, rows.clone())
    )


def test_the_tape_computes_the_same() -> None:
    check_twin(RepetitionPenalty(1.2), random_rows(30))


def test_a_positive_score_is_divided_and_a_negative_one_multiplied() -> None:
    """The prompt has tokens 1, 3, 4 and 5, and the new text 2."""
    row = [4.0, 4.0, -4.0, 0.0, -1.0, 1.0]
    assert apply(RepetitionPenalty(2.0), row, new=[2]).tolist() == [4, 2, -8, 0, -2, 0.5]


def test_a_penalty_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        RepetitionPenalty(0.0)
