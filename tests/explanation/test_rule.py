"""Rules: arithmetic over keys that can be run again, rewritten and printed."""

import math

import pytest

from pellucid.explanation.rule import (
    ARITY,
    FUNCTIONS,
    Rule,
    RuleCall,
    compute,
    find_keys,
    format_rule,
    simplify,
)


def call(function: str, *args: Rule) -> RuleCall:
    return RuleCall(function, args)


def test_every_function_has_its_number_of_arguments() -> None:
    assert set(ARITY) == set(FUNCTIONS)


@pytest.mark.parametrize("rule", [call("log", -1.0), call("divide", 1.0, 0.0), call("power", -8.0, 1 / 3)])
def test_a_rule_without_a_value_gives_nan(rule: Rule) -> None:
    assert math.isnan(compute(rule, {}))


def test_only_the_chosen_branch_is_computed() -> None:
    rule = call("choose", call("greater", "u", 0.0), call("log", "u"), 0.0)
    assert compute(rule, {"u": -1.0}) == 0
    assert compute(rule, {"u": 1.0}) == 0
    assert [*find_keys(rule)] == ["u", "u"]


@pytest.mark.parametrize(
    ("rule", "simple"),
    [
        (call("+", call("multiply", "a", 0.0), "b"), "b"),
        (call("multiply", 1.0, "a"), "a"),
        (call("divide", "a", "a"), 1.0),
        (call("+", call("exp", -math.inf), call("exp", "s")), call("exp", "s")),
        (
            call("exp", call("subtract", call("max", "s", -math.inf), "s")),
            call("exp", call("subtract", "s", "s")),
        ),
        (call("exp", call("subtract", -math.inf, "m")), 0.0),
        (call("choose", call("greater", "u", 0.0), 0.0, 0.0), 0.0),
        (call("+"), 0.0),
    ],
)
def test_what_a_mask_leaves_is_simplified(rule: Rule, simple: Rule) -> None:
    assert simplify(rule) == simple


def test_a_rule_is_written_as_typed_into_a_calculator() -> None:
    rule = call("choose", call("greater", "u", 0.0), call("multiply", call("+", "a", "b"), 0.5), 0.0)
    assert format_rule(rule, {"u": "U", "a": "-1", "b": "2"}.__getitem__) == "(-1 + 2) / 2 if U > 0, else 0"


def test_a_factor_of_one_eighth_is_written_as_a_division() -> None:
    eighth = RuleCall("divide", (1.0, 8.0))
    assert format_rule(RuleCall("multiply", (RuleCall("+", ("a", "b")), eighth)), str) == "(a + b) / 8"
    assert format_rule(RuleCall("multiply", ("a", "b", eighth)), str) == "a · b / 8"


def test_a_product_that_begins_with_a_minus_is_subtracted_in_parentheses() -> None:
    product = RuleCall("multiply", (-0.5, "g"))
    assert format_rule(RuleCall("subtract", ("w", product)), str) == "w - (-0.5 · g)"
    assert format_rule(RuleCall("add", ("w", product)), str) == "w - 0.5 · g"
