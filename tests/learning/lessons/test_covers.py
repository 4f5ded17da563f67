"""What a sheet asks is covered on the page until it is predicted, and a wrong prediction is explained."""

import re

import pytest

from pellucid.learning.lessons.covers import Cover, Covers
from pellucid.learning.lessons.ladder import find_lesson, lessons
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.placeholders import PageNumber
from pellucid.learning.lessons.terminal import make_terminal_style, write_section, write_text

LESSON = find_lesson(13)
DRAWN = (13, 15)
"""Lessons with a picture of numbers in their Formula section."""
RUN = "forward"


def find(covers: Covers, address: str) -> Cover:
    cover = covers.find(PageNumber("", RUN, address))
    assert cover is not None
    return cover


def test_what_the_sheet_asks_is_covered_and_what_it_prints_is_not() -> None:
    covers = Covers(LESSON)
    assert find(covers, "blocks.0.attn.pattern[t=1,s=0]").value == "0.1956"
    assert covers.find(PageNumber("1", RUN, "embed.weight[v=0,c=0]")) is None
    assert covers.find(PageNumber("four")) is None


@pytest.mark.parametrize(
    ("prediction", "verdict"),
    [
        ("0.1956", "right"),
        ("0,1956", "right"),
        ("0.2", "right (give 4 decimals)"),
        ("+", "right"),
        ("-", "wrong"),
        ("< 0.5", "right"),
        (">1/2", "wrong"),
        ("0.3", "wrong"),
        ("0.7", "wrong"),
    ],
)
def test_a_prediction_is_a_number_a_sign_or_a_comparison(prediction: str, verdict: str) -> None:
    judged = find(Covers(LESSON), "blocks.0.attn.pattern[t=1,s=0]").judge(prediction)
    assert judged is not None and judged.is_right == verdict.startswith("right")
    assert judged.text.startswith(verdict) and judged.text.endswith("P[1,0] = 0.1956")


@pytest.mark.parametrize("prediction", ["0.3", "-", "> 0.5"])
def test_the_first_wrong_try_is_answered_with_a_hint_and_not_with_the_number(prediction: str) -> None:
    cover = find(Covers(LESSON), "blocks.0.attn.pattern[t=1,s=0]")
    judged = cover.judge(prediction, is_last=False)
    assert judged is not None and not judged.is_right
    assert judged.text.startswith("wrong") and cover.hint(1) in judged.text and "0.1956" not in judged.text
    right = cover.judge("0.1956", is_last=False)
    assert right is not None and right.is_right


def test_a_wrong_number_is_explained_by_its_mistake() -> None:
    cover = find(Covers(LESSON), "blocks.0.attn.scores[t=1,s=1]")
    for is_last in (False, True):
        judged = cover.judge("2", is_last)
        assert judged is not None and "scores without 1/√D" in judged.text


@pytest.mark.parametrize("text", ["abc", "", "> abc", "=", "__import__('os')"])
def test_what_is_not_a_prediction_has_no_verdict(text: str) -> None:
    assert find(Covers(LESSON), "blocks.0.attn.pattern[t=1,s=0]").judge(text) is None


def test_hints_never_say_the_value() -> None:
    cover = find(Covers(LESSON), "blocks.0.attn.pattern[t=1,s=0]")
    hints = [cover.hint(stage) for stage in (1, 2, 3, 4)]
    assert hints[2] == hints[3] and len(set(hints)) == 3
    assert not any("0.1956" in hint for hint in hints)


def test_a_covered_number_is_masked_in_pictures_and_arithmetics_until_it_is_uncovered() -> None:
    covers = Covers(LESSON)
    line = "S 1.4142  e^1.414  -1.4142 0 1"
    assert covers.mask(line) == "S □  e^□  □ 0 1"
    assert covers.mask(line, keeps_width=True) == "S      □  e^    □        □ 0 1"
    covers.uncover(find(covers, "blocks.0.attn.scores[t=1,s=1]"))
    assert covers.mask(line) == line


def test_in_a_row_of_a_picture_whole_numbers_and_other_digits_of_what_is_asked_are_masked() -> None:
    covers = Covers(LESSON)
    assert covers.mask("  Q = (2, 0) (0, 2)   ← X_E") == "  Q = (□, □) (□, □)   ← X_E"
    assert covers.mask("  X_E = (1, 0) (0, 1)") == "  X_E = (1, 0) (0, 1)"
    covers.uncover(find(covers, "blocks.0.attn.q[t=1,d=1]"))
    assert covers.mask("  Q = (2, 0) (0, 2)") == "  Q = (2, □) (□, 2)"
    asked = Covers(find_lesson(15))  # dP[1,1] is asked as 1.102, and drawn as 1.1021
    assert asked.mask("dP = (0, 0) (−0.9028, 1.1021)") == "dP = (0, 0) (□, □)"


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=() if number in DRAWN else pytest.mark.torture) for number in lessons()],
)
def test_the_formula_section_shows_no_number_that_is_asked(number: int) -> None:
    lesson = find_lesson(number)
    covers = Covers(lesson)
    style = make_terminal_style(
        lesson, 80, False, lambda shown: "□" if covers.find(shown) else shown.text, covers.mask
    )
    asked = {cover.box.symbol.partition("[")[0]: cover for cover in covers.all}
    for line in write_section(lesson, "Formula", style, 80):
        symbol, _, numbers = line.strip().partition(" = (")
        if numbers and symbol in asked:
            values = {float(text.replace("−", "-")) for text in re.findall(r"[-−]?\d[\d.]*", numbers)}
            wanted = {c.sheet.key[c.box.key] for c in covers.all if c.box.symbol.startswith(f"{symbol}[")}
            assert not any(abs(abs(x) - abs(y)) < 6e-5 for x in values for y in wanted), line


@pytest.mark.parametrize("number", [13, 15, 18])
def test_only_what_the_page_shows_is_covered_and_given_numbers_are_never_masked(number: int) -> None:
    lesson = find_lesson(number)
    covers, seen = Covers(lesson), list[Cover]()

    def note(shown: PageNumber) -> str:
        cover = covers.find(shown)
        seen.extend([cover] if cover else [])
        return shown.text

    for title in SECTIONS:
        list(write_section(lesson, title, make_terminal_style(lesson, 80, True, note), 80))
    for cover in seen:
        covers.uncover(cover)
    arithmetic = "\n".join(write_text(lesson, 80, True))
    assert seen and covers.mask(arithmetic) == arithmetic
    assert Covers(lesson).mask("0.5 2.3 −1.2 0.02") == "0.5 2.3 −1.2 0.02"
