"""The steps of a speculated text by hand, and models whose texts cannot be speculated."""

from typing import Any

import pytest

from pellucid.generation.request import Completion
from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.proposals import CHECKS, follow_steps, plant_wrong
from tests.formats.gguf import random_models

PROPOSALS: Check = CHECKS[0]


def measure(**more: object) -> Any:
    given = random_models.model(random_models.LLAMA | {"n_layer": 1} | more)
    return PROPOSALS.measure(Subject(Model(given)))


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


def test_each_place_has_a_wrong_proposal() -> None:
    finding = measure()
    assert finding.verdict == "equal", finding.at
    assert finding.measured.startswith("32 texts of 24 tokens")


def test_a_short_context_has_shorter_texts() -> None:
    assert measure(context_length=9).measured.startswith("7 texts of 5 tokens")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"mask": "none"}, "bidirectional"),
        ({"mask": {"kind": "prefix", "length": 4}}, "bidirectional"),
        ({"mask": {"kind": "window", "size": 9}}, "forget"),
        ({"context_length": 6}, "room"),
    ],
)
def test_a_text_that_cannot_be_speculated_has_a_reason(more: dict[str, Any], reason: str) -> None:
    finding = measure(**more)
    assert finding.verdict == "skipped" and reason in finding.measured
