"""The definitions of the samplers and of the figures of a token, with numbers by hand."""

import math

import numpy as np
import pytest

from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import kinds
from pellucid.verification.checks.generation.definitions import (
    DEFINITIONS,
    TextSoFar,
    compute_probabilities,
    define_entropy,
    define_logprobs,
    define_rank,
    define_scores,
    explains_draw,
    find_wrong_top,
    follow_samplers,
    is_drawn,
)

LOGITS = np.log([0.5, 0.3, 0.15, 0.05])
TEXT = TextSoFar(prompt=(1,), new=(2, 2))
CASES = {
    "temperature": ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),
    "top_k": ({"top_k": 2}, [0.625, 0.375, 0, 0]),
    "top_p": ({"top_p": 0.6}, [0.625, 0.375, 0, 0]),
    "top_p at a border": ({"top_p": 0.5}, [1, 0, 0, 0]),
    "min_p": ({"min_p": 0.25}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
    "banned_tokens": ({"banned_tokens": (0,)}, [0, 0.6, 0.3, 0.1]),
    "forced_tokens": ({"forced_tokens": (0, 0, 3)}, [0, 0, 0, 1]),
    "logit_bias": ({"logit_bias": {3: float(np.log(3))}}, [0.5 / 1.1, 0.3 / 1.1, 0.15 / 1.1, 0.15 / 1.1]),
    "presence_penalty": (
        {"presence_penalty": float(np.log(3))},
        [0.5 / 0.9, 0.3 / 0.9, 0.05 / 0.9, 0.05 / 0.9],
    ),
    "frequency_penalty": (
        {"frequency_penalty": float(np.log(3) / 2)},
        [0.5 / 0.9, 0.3 / 0.9, 0.05 / 0.9, 0.05 / 0.9],
    ),
    "repetition_penalty": (
        {"repetition_penalty": 2.0},
        [0.5 / 0.6625, 0.09 / 0.6625, 0.0225 / 0.6625, 0.05 / 0.6625],
    ),
    "min_new_tokens": ({"min_new_tokens": 3, "stop_ids": (0,)}, [0, 0.6, 0.3, 0.1]),
    "typical_p": ({"temperature": 1.0, "typical_p": 0.2}, [0, 1, 0, 0]),
}
"""Settings, and the probabilities that they leave. The entropy is 1.14 nats, so that token 1, with 1.20, is
the most typical."""


@pytest.mark.parametrize("name", CASES)
def test_a_definition_gives_the_numbers_by_hand(name: str) -> None:
    settings, wanted = CASES[name]
    text = TextSoFar(TEXT.prompt, TEXT.new, settings.get("stop_ids", ()))
    got = compute_probabilities(define_scores(LOGITS, Sampling(**settings), text))
    assert got == pytest.approx(wanted, abs=1e-12)


def test_every_sampler_with_a_setting_has_a_definition() -> None:
    """A constraint's mask is checked with its grammar, in `tests/generation/constraints/`."""
    assert set(kinds("samplers")) - {"constraint"} == set(DEFINITIONS)
    assert set(DEFINITIONS) == {name.split(" ")[0] for name in CASES}


def test_the_drawn_token_is_the_first_whose_cumulative_probability_exceeds_u() -> None:
    for u, wanted in ((0.0, 0), (0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2), (0.96, 3), (1 - 1e-16, 3)):
        assert [id for id in range(4) if is_drawn(LOGITS, id, u)] == [wanted]


def test_tokens_of_equal_score_may_stand_in_any_order() -> None:
    assert [id for id in range(3) if is_drawn(np.zeros(3), id, 0.1)] == [0, 1, 2]


def test_a_removed_token_is_never_drawn_and_rounding_at_a_bound_is_free() -> None:
    assert not explains_draw(LOGITS, Sampling(temperature=1, top_k=1), TEXT, 1, 0.0)
    assert explains_draw(LOGITS, Sampling(temperature=1, top_p=0.8), TEXT, 2, 0.9999)  # 0.5 + 0.3 is 0.8
    assert explains_draw(LOGITS, Sampling(temperature=0), TEXT, 0, None)
    assert not explains_draw(LOGITS, Sampling(temperature=0), TEXT, 1, None)


# ---- the figures


THREE = np.log(np.array([0.25, 0.5, 0.25, 0.0]) + np.array([0, 0, 0, 1e-300]))
TOP = [(1, math.log(0.5)), (0, math.log(0.25)), (2, math.log(0.25))]


def test_the_figures_of_three_probabilities() -> None:
    assert np.allclose(define_logprobs(THREE)[:3], np.log([0.25, 0.5, 0.25]))
    assert math.isclose(define_entropy(THREE), 1.5 * math.log(2))
    assert [define_rank(THREE, id) for id in range(4)] == [1, 0, 2, 3]


def test_a_token_that_cannot_follow_has_no_part_in_the_entropy() -> None:
    assert define_entropy(np.array([0.0, -np.inf, -np.inf])) == 0.0


def test_the_most_probable_tokens_are_right_in_any_order_of_equal_ones() -> None:
    assert not find_wrong_top(TOP, THREE, 3)
    assert not find_wrong_top([TOP[0], TOP[2], TOP[1]], THREE, 3)
    for wrong in (TOP[:2], TOP[::-1], [TOP[0], TOP[1], TOP[1]], [TOP[0], TOP[1], (3, TOP[1][1])]):
        assert find_wrong_top(wrong, THREE, 3)


def test_a_bounded_list_has_the_bound_for_every_smaller_number() -> None:
    assert not find_wrong_top([*TOP, (3, -100.0)], THREE, 4, -100.0)
    assert find_wrong_top([*TOP, (3, -100.0)], THREE, 4)


def test_each_sampler_that_is_set_is_a_stage() -> None:
    text = TextSoFar([0], [])
    stages = follow_samplers(THREE, Sampling(temperature=2.0, top_k=1, banned_tokens=(1,)), text)
    assert [stage.name for stage in stages] == ["banned_tokens", "temperature", "top_k"]
    assert np.isinf(stages[0].after[1]) and stages[0].before[1] == THREE[1]
    assert not follow_samplers(THREE, Sampling(), text)
