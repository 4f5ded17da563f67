"""`verify` finds nothing wrong with a healthy model, whichever choice it makes."""

import pytest

from pellucid.checks.catalogue import CHECKS
from pellucid.checks.check import Subject
from pellucid.workbench import Model
from tests.agreement.engines import DIFFERENT, FAMILY
from tests.interop.gguf import random_models
from tests.small_choices import small

OUTSIDE = (
    "tokenizer",
    "tokenizer outside",
    "conventions",
    "transformers",
    "llama.cpp",
    "compiled",
    "finite differences",
)
"""Checks by other programs, or that the choice of a part does not change."""


@pytest.mark.rotating
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_healthy_model_of_any_choice_passes(name: str) -> None:
    field, _, kind = name.partition("/")
    subject = Subject(Model(random_models.model(random_models.LLAMA | {field: small(FAMILY[field], kind)})))
    made = 0
    for check in CHECKS:
        grows = (name, check.name) == ("norm/none", "int8 cache")  # from block to block, beyond any 8 bits
        if check.name not in OUTSIDE and not grows:
            finding = check.measure(subject)
            assert finding.verdict in ("equal", "noise", "skipped"), f"{check.name}: {finding}"
            made += finding.verdict != "skipped"
    assert made >= 7
