"""Rows of unequal lengths are read in any cache, or there is a reason why not."""

from typing import Any

import pytest

from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine.unequal_lengths import CHECKS
from tests.formats.gguf import random_models

LENGTHS: Check = CHECKS[0]


def measure(**more: object) -> Any:
    given = random_models.model(random_models.LLAMA | {"n_layer": 1} | more)
    return LENGTHS.measure(Subject(Model(given)))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"context_length": 4},
        {"context_length": 5},
        {"mask": {"kind": "window", "size": 3}},
        {"mask": {"kind": "sinks", "tokens": 2, "size": 3}},
        {"attention": "linear_elu", "positions": "none"},
    ],
    ids=str,
)
def test_every_cache_gives_the_logits_of_last_tokens(more: dict[str, Any]) -> None:
    finding = measure(**more)
    assert finding.verdict == "equal", finding.at
    assert finding.measured.endswith("18 last tokens")


@pytest.mark.parametrize(
    ("more", "reason"), [({"mask": "none"}, "bidirectional"), ({"context_length": 3}, "room")]
)
def test_rows_that_cannot_differ_have_a_reason(more: dict[str, Any], reason: str) -> None:
    finding = measure(**more)
    assert finding.verdict == "skipped" and reason in finding.measured
