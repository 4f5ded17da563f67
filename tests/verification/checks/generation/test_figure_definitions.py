"""The figures of a token by hand, and what is wrong with others."""

import math

import numpy as np

from pellucid.generation.settings.sampling import Sampling
from pellucid.verification.checks.generation.figure_definitions import (
    define_entropy,
    define_logprobs,
    define_rank,
    find_wrong_top,
    follow_samplers,
)
from pellucid.verification.checks.generation.sampler_definitions import TextSoFar

LOGITS = np.log(np.array([0.25, 0.5, 0.25, 0.0]) + np.array([0, 0, 0, 1e-300]))
TOP = [(1, math.log(0.5)), (0, math.log(0.25)), (2, math.log(0.25))]


def test_the_figures_of_three_probabilities() -> None:
    assert np.allclose(define_logprobs(LOGITS)[:3], np.log([0.25, 0.5, 0.25]))
    assert math.isclose(define_entropy(LOGITS), 1.5 * math.log(2))
    assert [define_rank(LOGITS, id) for id in range(4)] == [1, 0, 2, 3]


def test_a_token_that_cannot_follow_has_no_part_in_the_entropy() -> None:
    assert define_entropy(np.array([0.0, -np.inf, -np.inf])) == 0.0


def test_the_most_probable_tokens_are_right_in_any_order_of_equal_ones() -> None:
    assert not find_wrong_top(TOP, LOGITS, 3)
    assert not find_wrong_top([TOP[0], TOP[2], TOP[1]], LOGITS, 3)
    for wrong in (TOP[:2], TOP[::-1], [TOP[0], TOP[1], TOP[1]], [TOP[0], TOP[1], (3, TOP[1][1])]):
        assert find_wrong_top(wrong, LOGITS, 3)


def test_a_bounded_list_has_the_bound_for_every_smaller_number() -> None:
    assert not find_wrong_top([*TOP, (3, -100.0)], LOGITS, 4, -100.0)
    assert find_wrong_top([*TOP, (3, -100.0)], LOGITS, 4)


def test_each_sampler_that_is_set_is_a_stage() -> None:
    text = TextSoFar([0], [])
    stages = follow_samplers(LOGITS, Sampling(temperature=2.0, top_k=1, banned_tokens=(1,)), text)
    assert [stage.name for stage in stages] == ["banned_tokens", "temperature", "top_k"]
    assert np.isinf(stages[0].after[1]) and stages[0].before[1] == LOGITS[1]
    assert not follow_samplers(LOGITS, Sampling(), text)
