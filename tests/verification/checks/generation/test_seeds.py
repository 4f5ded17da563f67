"""Every bit of a seed is judged, where texts are few by their random numbers alone."""

from dataclasses import replace
from typing import Any

import pytest

from pellucid.generation.request import Completion
from pellucid.generation.samplers.drawn_token import draw_uniform
from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.seeds import CHECKS, define_numbers, judge_seeds
from tests.formats.gguf import random_models

SEEDS: Check = CHECKS[0]


def measure(**more: object) -> Any:
    given = random_models.model(random_models.LLAMA | {"n_layer": 1} | more, tokenizer=None)
    return SEEDS.measure(Subject(Model(given)))


def test_the_definition_of_u_is_that_of_the_engine() -> None:
    for seed in (0, 11, 2**62 + 3):
        assert define_numbers(seed, 3) == [draw_uniform(seed, 0, step) for step in range(3)]


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ({}, "10 texts"),
        ({"vocab_size": 2}, "10 texts"),
        ({"vocab_size": 1}, "10 sequences of u"),
        ({"context_length": 2}, "10 sequences of u"),
    ],
)
def test_texts_are_compared_where_chance_makes_no_two_equal(more: dict[str, Any], start: str) -> None:
    finding = measure(**more)
    assert finding.verdict == "equal", finding.at
    assert finding.measured.startswith(start)


@pytest.mark.parametrize(("more", "reason"), [({"mask": "none"}, "causal"), ({"context_length": 1}, "room")])
def test_a_model_that_draws_nothing_has_a_reason(more: dict[str, Any], reason: str) -> None:
    finding = measure(**more)
    assert finding.verdict == "skipped" and reason in finding.measured


def test_a_seed_that_was_not_the_one_given_is_named() -> None:
    text = Completion(0, (), "", "length", seed=11)
    assert judge_seeds({-1: text}, {-1: text}, True).verdict == "equal"
    assert judge_seeds({-1: replace(text, seed=7)}, {-1: replace(text, seed=7)}, True).at == "seeds.u[bit=-1]"
