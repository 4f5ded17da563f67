"""Presence penalty: μ − α · 1[count > 0], as OpenAI's reference writes it, over the new tokens alone."""

from pellucid.parts.samplers.presence_penalty import PresencePenalty
from tests.parts.samplers.rows import apply, check_twin, random_rows


def test_a_token_of_the_new_text_loses_alpha_once() -> None:
    """The prompt has 1, 3, 4 and 5, which lose nothing."""
    assert apply(PresencePenalty(0.5), [1.0] * 6, new=[2, 2, 0]).tolist() == [0.5, 1, 0.5, 1, 1, 1]
    assert apply(PresencePenalty(-0.5), [1.0] * 6, new=[2]).tolist() == [1, 1, 1.5, 1, 1, 1]


def test_nothing_happens_before_the_first_new_token() -> None:
    assert apply(PresencePenalty(0.5), [1.0] * 6, new=[]).tolist() == [1] * 6


def test_the_tape_computes_the_same() -> None:
    check_twin(PresencePenalty(0.7), random_rows(30))
