"""The steps of a speculated text, and the borders near which prompts part, by hand."""

from pellucid.generation.request import Completion
from pellucid.verification.checks.generation.shortcuts import choose_borders, follow_steps, plant_wrong


def test_the_steps_of_eight_tokens() -> None:
    """Token 0 is drawn from the prompt, and the last one is never proposed."""
    steps = list(follow_steps([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 4, 5, 6, 7, 8]))
    assert [(step.step, step.proposed, step.accepted) for step in steps] == [
        (1, (2, 9, 4, 5, 6), 1),
        (3, (4, 5, 6, 7), 4),
    ]


def test_a_wrong_token_is_the_most_probable_other_one() -> None:
    tops = (((1, -0.1), (2, -3.0)), ((7, -0.2), (5, -2.0)))
    text = Completion(0, (1, 5), "", "length", top_logprobs=tops)
    assert [plant_wrong(text, place) for place in range(2)] == [[2, 5], [1, 7]]


def test_borders_are_those_of_the_engine_where_the_context_holds_them() -> None:
    assert choose_borders(2048, False) == (128, (256, 128))
    assert choose_borders(2048, True) == (128, (128,))
    assert choose_borders(200, False) == (128, (128,))
    assert choose_borders(26, False) == (10, (20, 10))
