"""Every figure of a healthy model is judged, or there is a reason why not."""

from typing import Any

import pytest

from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.figures import CHECKS
from tests.formats.gguf import random_models

FIGURES: Check = CHECKS[0]


def subject(dtype: str = "float32", **more: object) -> Subject:
    given = random_models.model(random_models.LLAMA | {"n_layer": 1} | more)
    return Subject(Model(given, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_figures_of_any_type_are_those_of_its_logits(dtype: str) -> None:
    finding = FIGURES.measure(subject(dtype))
    assert finding.verdict == "equal", finding.at
    assert "8 tokens" in finding.measured


@pytest.mark.parametrize("vocab_size", [1, 2, 3])
def test_a_vocabulary_that_is_smaller_than_a_list_has_all_of_its_tokens_listed(vocab_size: int) -> None:
    given = random_models.model(random_models.LLAMA | {"vocab_size": vocab_size}, tokenizer=None)
    finding = FIGURES.measure(Subject(Model(given)))
    assert finding.verdict == "equal", finding.at


@pytest.mark.parametrize(("more", "reason"), [({"mask": "none"}, "causal"), ({"context_length": 1}, "room")])
def test_a_model_that_cannot_generate_has_no_figures(more: dict[str, Any], reason: str) -> None:
    finding = FIGURES.measure(subject(**more))
    assert finding.verdict == "skipped" and reason in finding.measured
