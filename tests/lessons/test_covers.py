"""What a sheet asks is covered on the page until it is predicted, and a wrong prediction is explained."""

import pytest

from pellucid.lessons.covers import Cover, Covers
from pellucid.lessons.ladder import find_lesson
from pellucid.lessons.page import SECTIONS
from pellucid.lessons.reference import PageNumber
from pellucid.lessons.terminal import make_terminal_style, write_section, write_text

LESSON = find_lesson(13)
RUN = next(iter(LESSON.program.traces))


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
    said = find(Covers(LESSON), "blocks.0.attn.pattern[t=1,s=0]").judge(prediction)
    assert said is not None and said.startswith(verdict) and said.endswith("P[1,0] = 0.1956")


def test_a_wrong_number_is_explained_by_its_mistake() -> None:
    said = find(Covers(LESSON), "blocks.0.attn.scores[t=1,s=1]").judge("2")
    assert said is not None and "scores without 1/√D" in said


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
    line = "S = (1.4142, 0)  e^1.414  -1.4142"
    assert covers.mask(line) == "S = (□, 0)  e^□  □"
    assert covers.mask(line, keeps_width=True) == "S = (     □, 0)  e^    □        □"
    covers.uncover(find(covers, "blocks.0.attn.scores[t=1,s=1]"))
    assert covers.mask(line) == line


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
