"""Each hint says more than the one before, in the learner's own numbers."""

import pytest

from pellucid.learning.sheets.hints import STAGES, make_hint
from pellucid.learning.sheets.mark import mark_sheet
from pellucid.learning.sheets.sheet import Sheet
from tests.learning.sheets.by_hand import answer


def hint(sheet: Sheet, stage: int) -> str:
    marking = mark_sheet(sheet)
    assert marking.first_wrong is not None
    return make_hint(marking, marking.first_wrong, stage)


WRONG = answer(P0="0.2", L="0.6990")
"""P₀ is wrong, and L = −log₁₀ 0.2 beside it."""


def test_the_first_hint_says_where_and_neither_formula_nor_number() -> None:
    text = hint(WRONG, 1)
    assert "P0" in text and "meaning of P0" in text and "E0, T" in text
    assert "softmax(S)" not in text and "0.3318" not in text


def test_the_second_names_the_mistake_and_the_formula() -> None:
    assert "softmax(S)" in hint(WRONG, 2)
    text = hint(answer(L="0.4791"), 2)
    assert "logarithm to base 10" in text


def test_a_mistake_comes_with_the_arithmetic_that_gives_the_answer() -> None:
    assert hint(answer(L="0.4791"), 2).splitlines()[0].endswith("Your number is -log₁₀(P0).")


def test_the_second_says_that_the_decimal_point_stands_elsewhere() -> None:
    assert hint(answer(P0="3.318"), 2).startswith("Your number is 10 times too large")


def test_the_third_is_the_arithmetic_with_your_numbers() -> None:
    assert hint(WRONG, 3).endswith("P0 = 1.6487 / 4.9688")
    assert hint(answer(E0="", P0="0.2"), 3).endswith("P0 = 1.6487 / 4.9688")  # an open box is computed
    assert hint(answer(T="10/2", P0="0.2"), 3).endswith("T = 1.6487 + 3.3201")


def test_a_formula_as_an_answer_is_put_in_parentheses() -> None:
    marking = mark_sheet(answer(T="10/2", P0="0.2"))
    assert make_hint(marking, marking.find("P0"), 3).endswith("P0 = 1.6487 / (10/2)")


def test_the_fourth_is_the_value_from_your_numbers_and_from_the_right_ones() -> None:
    text = hint(WRONG, 4)
    assert "P0 = 0.3318" in text
    marking = mark_sheet(WRONG)
    text = make_hint(marking, marking.find("L"), 4)
    assert "1.6094" in text and "1.1032" in text


@pytest.mark.parametrize("stage", STAGES)
def test_an_open_box_has_hints_too(stage: int) -> None:
    marking = mark_sheet(answer(P1=""))
    assert "P" in make_hint(marking, marking.find("P1"), stage)
