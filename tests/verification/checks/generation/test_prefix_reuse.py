"""The borders near which prompts part, and models whose prompts share nothing."""

from typing import Any

import pytest

from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.prefix_reuse import CHECKS, choose_borders
from tests.formats.gguf import random_models

REUSE: Check = CHECKS[0]


def measure(**more: object) -> Any:
    given = random_models.model(random_models.LLAMA | {"n_layer": 1} | more)
    return REUSE.measure(Subject(Model(given)))


def test_borders_are_those_of_the_engine_where_the_context_holds_them() -> None:
    assert choose_borders(2048, False) == (128, (256, 128))
    assert choose_borders(2048, True) == (128, (128,))
    assert choose_borders(200, False) == (128, (128,))
    assert choose_borders(26, False) == (10, (20, 10))


def test_prompts_share_whole_chunks() -> None:
    """Of 2 · 10 + 1, 2 · 10 and 2 · 10 − 1 tokens 20, 20 and 10 are taken, then 10, 10 and 0."""
    finding = measure(context_length=26)
    assert finding.verdict == "equal", finding.at
    assert finding.measured == "6 prompts, 70 tokens reused in chunks of 10"


def test_a_prompt_that_parts_near_two_borders_is_read_once() -> None:
    """Of chunks of 2 tokens, 3 are before the second border and behind the first."""
    finding = measure(context_length=10)
    assert finding.verdict == "equal", finding.at
    assert finding.measured == "5 prompts, 12 tokens reused in chunks of 2"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"mask": "none"}, "bidirectional"),
        ({"mask": {"kind": "window", "size": 9}}, "cannot be cut"),
        ({"context_length": 9}, "room"),
    ],
)
def test_prompts_that_cannot_be_shared_have_a_reason(more: dict[str, Any], reason: str) -> None:
    finding = measure(**more)
    assert finding.verdict == "skipped" and reason in finding.measured
