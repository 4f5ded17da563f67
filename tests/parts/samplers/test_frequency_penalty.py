"""Frequency penalty: μ − β · count, as OpenAI's reference writes it, over the new tokens alone."""

from pellucid.parts.samplers.frequency_penalty import FrequencyPenalty
from tests.parts.samplers.rows import apply, check_twin, random_rows


def test_a_token_loses_beta_each_time_that_it_was_generated() -> None:
    """The prompt has 1, 3, 4 and 5, which lose nothing."""
    assert apply(FrequencyPenalty(0.5), [1.0] * 6, new=[2, 2, 0]).tolist() == [0.5, 1, 0, 1, 1, 1]
    assert apply(FrequencyPenalty(-0.5), [1.0] * 6, new=[2, 2]).tolist() == [1, 1, 2, 1, 1, 1]


def test_nothing_happens_before_the_first_new_token() -> None:
    assert apply(FrequencyPenalty(0.5), [1.0] * 6, new=[]).tolist() == [1] * 6


def test_the_tape_computes_the_same() -> None:
    check_twin(FrequencyPenalty(0.7), random_rows(30))
