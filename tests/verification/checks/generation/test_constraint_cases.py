"""Every case allows its example, which the tokens can spell, and not whatever follows it."""

import pytest

from pellucid.verification.checks.generation.constraint_cases import (
    CASES,
    MASK_CASES,
    TOKENS,
    ConstraintCase,
    MaskCase,
)


def test_there_are_forty_cases() -> None:
    assert len({case.name for case in CASES}) == 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_allows_its_example_and_not_every_text(case: ConstraintCase) -> None:
    assert case.accepts(case.example)
    assert not case.accepts(case.example + "\n\n\0")
    assert set(case.example) <= set(TOKENS)


@pytest.mark.parametrize("given", MASK_CASES, ids=lambda given: given.case.name)
def test_the_texts_of_small_constraints_are_spelled_by_their_tokens(given: MaskCase) -> None:
    assert given.case.accepts(given.case.example) and len(given.case.example) <= given.longest
    assert set(given.case.example) <= set("".join(given.tokens))
