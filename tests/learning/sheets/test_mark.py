"""One slip makes one box wrong, what follows from it is right, and the mistake behind it is named."""

import json
from dataclasses import replace

import pytest

from pellucid.learning.sheets.mark import STAGES, Grade, MarkedBox, make_hint, mark_sheet
from pellucid.learning.sheets.sheet import Sheet, format_answer
from tests.learning.sheets.by_hand import KEY, SHEET, answer, answer_only, call, make_box
from tests.learning.sheets.published_answers import PUBLISHED, Published

RIGHT, FROM_YOURS, ROUNDING, WRONG, OPEN, UNREADABLE = Grade


def find_mark(sheet: Sheet, key: str) -> MarkedBox:
    return next(marked for marked in mark_sheet(sheet).boxes if marked.box.key == key)


def find_unusual(sheet: Sheet) -> dict[str, Grade]:
    """Returns the boxes that are not plainly right."""
    return {m.box.key: m.grade for m in mark_sheet(sheet).boxes if m.grade is not RIGHT}


def test_the_key_is_what_the_page_says() -> None:
    assert KEY == {
        "E0": "1.6487", "E1": "3.3201", "T": "4.9688", "P0": "0.3318", "P1": "0.6682", "Z": "-0.0046",
        "N": "3", "L": "1.1032",
    }  # fmt: skip
    assert not find_unusual(answer())


def test_nothing_written_is_open_and_not_a_mistake() -> None:
    assert set(find_unusual(SHEET).values()) == {OPEN}
    assert mark_sheet(SHEET).first_wrong is None


def test_what_follows_from_a_wrong_answer_is_right_from_your_numbers() -> None:
    """e^0.5 = 1.7487: Σ = 5.0688, P = (0.3450, 0.6550), Z = 0.0350, L = 1.0642."""
    slipped = answer(E0="1.7487", T="5.0688", P0="0.3450", P1="0.6550", Z="0.0350", L="1.0642")
    assert find_unusual(slipped) == {"E0": WRONG, **dict.fromkeys(["T", "P0", "P1", "Z", "L"], FROM_YOURS)}


HALF = make_box("H", 0.5, decimals=4)


@pytest.mark.parametrize(
    ("text", "grade"),
    [("0.5", RIGHT), ("1/2", RIGHT), ("0.50", RIGHT), ("0.5000", RIGHT), ("0.4", WRONG), ("0.49", WRONG)],
)
def test_an_exact_answer_is_right_without_the_asked_decimals(text: str, grade: Grade) -> None:
    sheet = replace(SHEET, boxes=(HALF,), checks=(), answers={"H": text})
    assert find_mark(sheet, "H").grade is grade


def test_an_exact_answer_leaves_no_room_for_what_follows_from_it() -> None:
    """1 for 1.0000 has no rounding: a box after it that is off by a tenth is wrong."""
    after = make_box("A", call("multiply", "H", 3.0), decimals=4)
    sheet = replace(SHEET, boxes=(HALF, after), checks=())
    for text, grade in (("1.6", WRONG), ("1.5", RIGHT)):
        assert find_mark(replace(sheet, answers={"H": "0.5", "A": text}), "A").grade is grade


def test_an_exact_answer_from_ones_own_number_is_right_from_it() -> None:
    after = make_box("A", call("multiply", "H", 3.0), decimals=4)
    sheet = replace(SHEET, boxes=(HALF, after), checks=(), answers={"H": "0.2", "A": "0.6"})
    assert [marked.grade for marked in mark_sheet(sheet).boxes] == [WRONG, FROM_YOURS]
    assert not find_mark(sheet, "A").note


def test_an_open_step_is_computed_from_the_learners_own_numbers() -> None:
    marks = find_unusual(answer_only(E0="1.7487", P0="0.3450"))
    assert (marks["E0"], marks["P0"], marks["T"]) == (WRONG, FROM_YOURS, OPEN)


@pytest.mark.parametrize(
    ("key", "text", "grade", "word"),
    [
        ("P0", "0.33", ROUNDING, "give 4 decimals"),
        ("P0", "0.3317", WRONG, ""),
        ("P0", "0.3", ROUNDING, "give 4 decimals"),
        ("P0", "0", WRONG, ""),
        ("P0", "0.331", ROUNDING, "cut off: 0.3318 rounds to 0.332; give 4 decimals"),
        ("P0", "0.33181", RIGHT, ""),
        ("P0", "3.318", WRONG, "10 times too large: check the decimal point"),
        ("P0", "0.003318", WRONG, "100 times too small: check the decimal point"),
        ("P0", "33.18 %", RIGHT, ""),
        ("P0", "0,3318", RIGHT, ""),
        ("E1", "3.32", ROUNDING, "give 4 decimals"),
        ("E1", "e^1.2", RIGHT, ""),
        ("E0", "1.6488", WRONG, ""),
        ("P1", "0.6681", ROUNDING, "cut off: 0.66819 rounds to 0.6682"),
        ("N", "3", RIGHT, ""),
        ("N", "3.000", RIGHT, ""),
        ("N", "3.3", WRONG, ""),
        ("N", "2.9999", WRONG, ""),
        ("P0", "a third", UNREADABLE, ""),
        ("P0", "nan", UNREADABLE, ""),
        ("P0", "inf", WRONG, ""),
    ],
)
def test_one_answer(key: str, text: str, grade: Grade, word: str) -> None:
    marked = find_mark(answer(**{key: text}), key)
    assert (marked.grade, word in marked.note) == (grade, True), marked.note


def test_a_whole_number_stands_for_all_its_decimals() -> None:
    box = make_box("A", call("multiply", "S0", 4.0), 3)
    after = make_box("B", call("multiply", "A", "S1"), 3)
    sheet = replace(SHEET, boxes=(box, after), checks=(), answers={"A": "2", "B": "2.9"})
    assert find_unusual(sheet) == {"B": WRONG}  # and not within the half of a whole unit


def test_exact_answers_leave_no_slack() -> None:
    after = make_box("M", call("multiply", "N", "S1"), 4)
    sheet = replace(SHEET, boxes=(*SHEET.boxes, after), answers={**KEY, "M": "3.1"})
    assert find_unusual(sheet) == {"M": WRONG}


def test_a_learner_who_keeps_all_digits_is_within_rounding_of_the_written_ones() -> None:
    """P = (0.4, 0.6) written with one decimal, carried on as (0.42, 0.58): Z = 0.26, and not 0.2."""
    marks = find_unusual(answer(P0="0.4", P1="0.6", Z="0.2600"))
    assert marks["Z"] is ROUNDING


def test_minus_zero_is_zero() -> None:
    zero = make_box("O", call("multiply", "S0", 0.0), 3)
    for text in ("-0.000", "0", "−0.0"):
        assert not find_unusual(replace(SHEET, boxes=(zero,), checks=(), answers={"O": text}))


def test_minus_infinity_is_an_answer() -> None:
    masked = make_box("M", -float("inf"), 3, exact=True)
    sheet = replace(SHEET, boxes=(masked,), checks=(), answers={"M": "−inf"})
    assert not find_unusual(sheet)
    assert find_unusual(replace(sheet, answers={"M": "-1000"})) == {"M": WRONG}


def test_the_learners_own_sign_decides_a_condition() -> None:
    """Z = 0.0046 for −0.0046 lets ReLU pass."""
    relu = make_box("A", call("choose", call("greater", "Z", 0.0), "Z", 0.0))
    sheet = replace(answer(), boxes=(*SHEET.boxes, relu))
    marks = find_unusual(replace(sheet, answers={**sheet.answers, "Z": "0.0046", "A": "0.0046"}))
    assert marks == {"Z": WRONG, "A": FROM_YOURS}


def test_a_number_that_has_no_value_is_marked_and_the_rest_too() -> None:
    marks = find_unusual(answer(P0="-0.3318", L="1.1"))
    assert marks["P0"] is WRONG and marks["L"] is ROUNDING
    assert json.dumps(mark_sheet(answer(P0="-0.3318")).to_data(), allow_nan=False)


def test_a_box_that_is_printed_is_not_asked() -> None:
    boxes = tuple(replace(box, shown=KEY[box.key]) if box.key == "E0" else box for box in SHEET.boxes)
    marking = mark_sheet(replace(answer(), boxes=boxes))
    assert {marked.box.key for marked in marking.boxes} == set(KEY) - {"E0"}
    assert marking.values["E0"] == 1.6487


# ---- mistakes


def name_mistakes(sheet: Sheet, key: str) -> list[str]:
    return [str(found) for found in find_mark(sheet, key).mistakes]


def test_a_mistake_is_named_where_its_rule_gives_the_answer() -> None:
    assert name_mistakes(answer(L="0.4791"), "L") == ["logarithm to base 10"]
    assert name_mistakes(answer(L="0.48"), "L") == ["logarithm to base 10"]
    assert name_mistakes(answer(L="0.5"), "L") == ["logarithm to base 10"]
    assert name_mistakes(answer(L="0.47"), "L") == []


def test_a_mistake_is_looked_for_with_the_learners_own_numbers() -> None:
    assert name_mistakes(answer(P0="0.2", L="0.6990"), "L") == ["logarithm to base 10"]


def test_a_mistake_in_a_step_left_open_is_found_through_it() -> None:
    """P₀ left open and not divided: L = −ln 1.6487 = −0.5."""
    assert name_mistakes(answer(P0="", L="-0.5000"), "L") == ["not divided by the sum, in P0"]


def test_a_mistake_is_found_where_more_digits_were_kept_than_written() -> None:
    """P₀ = 0.33 was written, and −log₁₀ 0.3318 computed."""
    assert name_mistakes(answer(P0="0.33", L="0.4791"), "L") == ["logarithm to base 10"]


def test_a_mistake_that_rounding_hides_is_not_named() -> None:
    """P₀ + P₁ − 1 from 0.3 and 0.7 is 0 ± 0.1: it explains 0.05 as well as any other number."""
    vague = call("+", "P0", "P1", -1.0)
    box = make_box("D", call("multiply", "P0", "S0", 0.001), 5, mistakes={"too vague": vague})
    rounded = answer(P0="0.3", P1="0.7")
    sheet = replace(rounded, boxes=(*SHEET.boxes, box), answers={**rounded.answers, "D": "0.05000"})
    assert find_mark(sheet, "D").grade is WRONG and not name_mistakes(sheet, "D")


def test_generic_slips_are_named_only_if_nothing_else_fits_and_few_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slips(names: int) -> None:
        generic = [(f"lost a term ({number})", call("multiply", "P0", "V0")) for number in range(names)]
        monkeypatch.setattr(
            "pellucid.learning.sheets.learner.find_slips",
            lambda sheet, box, is_generic: iter(generic if is_generic and box.key == "Z" else []),
        )

    slips(2)
    assert len(name_mistakes(answer(Z="0.6636"), "Z")) == 2
    slips(3)
    assert name_mistakes(answer(Z="0.6636"), "Z") == []
    slips(1)
    box = replace(SHEET.by_key["Z"], mistakes={"its own": call("multiply", "P0", "V0")})
    sheet = replace(answer(Z="0.6636"), boxes=tuple(box if b.key == "Z" else b for b in SHEET.boxes))
    assert name_mistakes(sheet, "Z") == ["its own"]


# ---- the original worksheets


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.name)
def test_the_published_answers_get_their_verdicts(published: Published) -> None:
    marks = {marked.box.key: marked for marked in published.marking.boxes}
    for key, (text, (grade, words)) in published.cells.items():
        marked = marks.pop(key)
        reasons = "; ".join([marked.note, *map(str, marked.mistakes)])
        assert (marked.text, marked.grade) == (text, grade), (key, reasons)
        assert words in reasons, (key, reasons)
    assert {marked.grade for marked in marks.values()} == {OPEN}  # the rest is not printed


def test_published_mistakes_are_explained_by_one_name_each() -> None:
    named = {
        published.name: [
            [found.name for found in marked.mistakes]
            for marked in published.marking.boxes
            if marked.grade is WRONG
        ]
        for published in PUBLISHED
    }
    equal_rows = "last query's row for every query"
    assert named["Example 3"] == [[f"{equal_rows}: as columns"]]
    assert named["Example 4, A B → C"] == [["factor of a product missing"]] * 6
    assert named["Example 4, A A → D"] == [[]] * 4 + [["term of the sum missing"]]
    assert named["Example 5"] == [[f"{equal_rows}: as rows"]] * 2
    assert named["Example 6"] == [["variance divided by N − 1"]] * 8


def test_a_published_row_that_sums_to_0_999_is_said() -> None:
    (failed,) = PUBLISHED[0].marking.failed
    assert failed.text == "0.999" and "probs[t=1,v=0]" in failed.check.keys


# ---- checks and totals


def test_a_row_that_misses_its_sum_is_said() -> None:
    (failed,) = mark_sheet(answer(P0="0.3318", P1="0.668")).failed
    assert (failed.check.keys, failed.text) == (("P0", "P1"), "0.9998")
    assert not mark_sheet(answer()).failed and not mark_sheet(answer(P0="", P1="0.6")).failed


def test_thirds_that_sum_to_0_999_are_not_a_failed_check() -> None:
    thirds = tuple(make_box(key, call("divide", 1.0, 3.0), 3) for key in "abc")
    check = replace(SHEET.checks[0], keys=("a", "b", "c"))
    sheet = replace(SHEET, boxes=thirds, checks=(check,), answers=dict.fromkeys("abc", "0.333"))
    assert not mark_sheet(sheet).failed
    assert mark_sheet(replace(sheet, answers={**sheet.answers, "c": "0.330"})).failed


def test_answers_that_are_rounded_well_may_miss_the_sum_by_their_rounding() -> None:
    """From Σ = 4.9677 the row is (0.3319, 0.6683), from 4.9683 it is (0.3318, 0.6683)."""
    high = answer(T="4.9677", P0="0.3319", P1="0.6683", Z="-0.0045", L="1.1029")
    assert find_unusual(high)["P1"] is FROM_YOURS
    assert mark_sheet(high).failed  # by more than two halves of a unit
    well = answer(T="4.9683", P0="0.3318", P1="0.6683")
    assert find_unusual(well)["P1"] is FROM_YOURS and not mark_sheet(well).failed


def test_totals_count_each_verdict() -> None:
    marking = mark_sheet(answer(E0="1.7487", T="5.0688", P0="0.345", P1="", Z="x", L="9"))
    assert marking.counts == {RIGHT: 2, FROM_YOURS: 2, ROUNDING: 0, WRONG: 2, OPEN: 1, UNREADABLE: 1}
    assert marking.first_wrong is not None and marking.first_wrong.box.key == "E0"
    assert marking.to_data()["totals"]["right from your numbers"] == 2


def test_json_has_the_verdicts_and_only_what_is_there() -> None:
    data = mark_sheet(answer(L="0.4791")).to_data()["boxes"]
    assert data[-1]["mistakes"] == [{"name": "logarithm to base 10", "place": ""}]
    assert data[0] == {
        "key": "E0", "symbol": "E0", "answer": "1.6487", "verdict": "right", "wanted": SHEET.key["E0"],
        "yours": SHEET.key["E0"],
    }  # fmt: skip


def test_the_last_digit_at_a_tie_may_be_either() -> None:
    tie = make_box("A", call("multiply", "S0", 0.25), 2)  # 0.125
    for text in ("0.12", "0.13"):
        assert not find_unusual(replace(SHEET, boxes=(tie,), checks=(), answers={"A": text}))
    assert format_answer(0.125, 2) in ("0.12", "0.13")


def hint(sheet: Sheet, stage: int) -> str:
    marking = mark_sheet(sheet)
    assert marking.first_wrong is not None
    return make_hint(marking, marking.first_wrong, stage)


SLIPPED = answer(P0="0.2", L="0.6990")
"""P₀ is wrong, and L = −log₁₀ 0.2 beside it."""


def test_the_first_hint_says_where_and_neither_formula_nor_number() -> None:
    text = hint(SLIPPED, 1)
    assert "P0" in text and "meaning of P0" in text and "E0, T" in text
    assert "softmax(S)" not in text and "0.3318" not in text


def test_the_second_names_the_mistake_and_the_formula() -> None:
    assert "softmax(S)" in hint(SLIPPED, 2)
    text = hint(answer(L="0.4791"), 2)
    assert "logarithm to base 10" in text


def test_a_mistake_comes_with_the_arithmetic_that_gives_the_answer() -> None:
    assert hint(answer(L="0.4791"), 2).splitlines()[0].endswith("Your number is -log₁₀(P0).")


def test_the_second_says_that_the_decimal_point_stands_elsewhere() -> None:
    assert hint(answer(P0="3.318"), 2).startswith("Your number is 10 times too large")


def test_the_third_is_the_arithmetic_with_your_numbers() -> None:
    assert hint(SLIPPED, 3).endswith("P0 = 1.6487 / 4.9688")
    assert hint(answer(E0="", P0="0.2"), 3).endswith("P0 = 1.6487 / 4.9688")  # an open box is computed
    assert hint(answer(T="10/2", P0="0.2"), 3).endswith("T = 1.6487 + 3.3201")


def test_a_formula_as_an_answer_is_put_in_parentheses() -> None:
    marking = mark_sheet(answer(T="10/2", P0="0.2"))
    assert make_hint(marking, marking.find("P0"), 3).endswith("P0 = 1.6487 / (10/2)")


def test_the_fourth_is_the_value_from_your_numbers_and_from_the_right_ones() -> None:
    text = hint(SLIPPED, 4)
    assert "P0 = 0.3318" in text
    marking = mark_sheet(SLIPPED)
    text = make_hint(marking, marking.find("L"), 4)
    assert "1.6094" in text and "1.1032" in text


@pytest.mark.parametrize("stage", STAGES)
def test_an_open_box_has_hints_too(stage: int) -> None:
    marking = mark_sheet(answer(P1=""))
    assert "P" in make_hint(marking, marking.find("P1"), stage)
