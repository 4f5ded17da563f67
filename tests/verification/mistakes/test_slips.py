"""Slips are made from a right rule alone: each is planted in a small rule and found under its own name."""

import math

import pytest

from pellucid.explanation.rule import Rule, RuleCall, compute
from pellucid.verification.mistakes import SHEET_MISTAKES, find_slips
from pellucid.verification.mistakes.slips import MOST_TERMS, SLIPS_OF_RULES

A, B = "a", "b"
PRODUCT = RuleCall("multiply", (A, B))
SUM = RuleCall("+", (PRODUCT, RuleCall("multiply", ("c", "d"))))
RSTD = RuleCall(
    "power",
    (RuleCall("add", (RuleCall("divide", (RuleCall("power", (A, 2.0)), 4.0)), 0.5)), -0.5),
)
VALUES = {"a": 3.0, "b": 0.5, "c": -2.0, "d": 5.0}
PLANTS: dict[str, tuple[Rule, float]] = {
    "e^ omitted": (RuleCall("exp", (A,)), 3.0),
    "power of 10 for e": (RuleCall("exp", (A,)), 1000.0),
    "logarithm to base 10": (RuleCall("negative", (RuleCall("log", (A,)),)), -math.log10(3)),
    "not divided by the sum": (RuleCall("divide", (A, RuleCall("+", (A, B)))), 3.0),
    "sum instead of mean": (RuleCall("divide", (RuleCall("+", (A, B)), 2.0)), 3.5),
    "root omitted": (RSTD, 1 / (9 / 4 + 0.5)),
    "reciprocal omitted": (RSTD, math.sqrt(9 / 4 + 0.5)),
    "power omitted": (RSTD, 1 / math.sqrt(3 / 4 + 0.5)),
    "factor of a product missing": (RuleCall("negative", (PRODUCT,)), -3.0),
    "sign lost": (RuleCall("negative", (PRODUCT,)), 1.5),
    "added instead of subtracted": (RuleCall("subtract", (A, PRODUCT)), 4.5),
    "branches swapped": (RuleCall("choose", (RuleCall("greater", (A, 0.0)), B, 0.0)), 0.0),
    "term of the sum missing": (SUM, 1.5),
    "step skipped": (RuleCall("maximum", (0.0, "c")), -2.0),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_slip_is_found_under_its_name(name: str) -> None:
    rule, answer = PLANTS[name]
    fitting = [slip.name for slip in find_slips(rule) if math.isclose(compute(slip.rule, VALUES), answer)]
    assert name in fitting
    assert not math.isclose(compute(rule, VALUES), answer)


def test_every_slip_is_planted_and_explained() -> None:
    assert set(PLANTS) == {name for name, _, _ in SLIPS_OF_RULES}
    assert set(PLANTS) <= set(SHEET_MISTAKES)


def test_a_slip_is_never_the_right_rule_nor_twice_the_same() -> None:
    for rule, _ in PLANTS.values():
        found = [slip.rule for slip in find_slips(rule, [A, rule, A])]
        assert rule not in found
        assert len(found) == len(set(found))


def test_a_factor_is_missing_from_one_product_alone() -> None:
    """Of a sum of products, with one factor of each missing, hardly any number says more than chance."""
    name = "factor of a product missing"
    assert [compute(slip.rule, VALUES) for slip in find_slips(PRODUCT) if slip.name == name] == [0.5, 3.0]
    assert not [slip for slip in find_slips(SUM) if slip.name == name]


def test_a_constant_is_not_a_factor_that_is_copied() -> None:
    scaled = RuleCall("multiply", (RuleCall("+", (A, B)), RuleCall("divide", (1.0, 3.0))))
    assert not [slip for slip in find_slips(scaled) if slip.name == "factor of a product missing"]
    assert not [slip for slip in find_slips(scaled) if slip.name == "reciprocal omitted"]


def test_lost_terms_neighbors_and_skipped_steps_are_not_specific() -> None:
    generic = {slip.name for slip in find_slips(SUM, ["e"]) if not slip.is_specific}
    generic |= {slip.name for slip in find_slips(PLANTS["step skipped"][0]) if not slip.is_specific}
    assert generic == {"term of the sum missing", "neighboring cell", "step skipped"}


def test_no_term_is_missed_in_a_sum_so_long_that_one_fits_any_number() -> None:
    names = [
        {slip.name for slip in find_slips(RuleCall("+", tuple(f"x{i}" for i in range(count))))}
        for count in (MOST_TERMS, MOST_TERMS + 1)
    ]
    assert names[0] - names[1] == {"term of the sum missing"}
