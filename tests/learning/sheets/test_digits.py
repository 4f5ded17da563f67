"""The printed digits determine the asked ones, and are few."""

import pytest

from pellucid.explanation.rule import RuleCall
from pellucid.learning.sheets.digits import MOST_DIGITS, print_given
from pellucid.learning.sheets.sheet import Given, significant_digits

TRIPLE = RuleCall("multiply", ("a", 3.0))


def print_third(value: float) -> tuple[Given, int]:
    """Returns a as printed, and the decimals that are asked, where the box 3 · a has this value."""
    given, asked = print_given({"a": (value / 3, "a")}, {"b": TRIPLE}, {"b": 4}, ["b"], {"b": value}, 4)
    return given["a"], asked["b"]


@pytest.mark.parametrize("value", [0.33024, 0.5217, 0.123462, 0.99996])
def test_a_box_in_focus_keeps_its_digits_where_a_printed_number_moves_by_half_a_unit(value: float) -> None:
    a, decimals = print_third(value)
    moved = {round(3 * (a.value + sign * a.half_unit), decimals) for sign in (-1, 0, 1)}
    assert moved == {round(value, decimals)} and decimals == 4


def test_a_decimal_less_is_asked_at_the_border_of_two_roundings() -> None:
    """0.1234500001 rounds to 0.1235, which takes nine digits to see; to 0.123 with six."""
    a, decimals = print_third(0.1234500001)
    assert decimals == 3 and significant_digits(a.text) <= MOST_DIGITS
