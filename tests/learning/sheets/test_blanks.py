"""The answer lines of a Markdown sheet: found however carelessly the file was edited."""

import re

import pytest

from pellucid.base.files import Damaged
from pellucid.learning.sheets.blanks import read_blanks
from tests.growth import assert_not_quadratic
from tests.learning.sheets.small_sheets import make_softmax_sheet

SHEET = make_softmax_sheet()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("(4) P[1,0] = 0.3208", "0.3208"),
        ("- (4) P[1,0] = 0,3208", "0,3208"),
        ("* **(4)** P\\[1,0\\] = \\_\\_0.3208\\_\\_", "0.3208"),
        ("- (4) P[1,0] = ____0.3208", "0.3208"),
        ("- (4) P[1,0] = 0.3208 ____", "0.3208"),
        ("| (4) P[1,0] = 0.3208 |", "0.3208"),
        ("- (4) P[1,0] =\n  0.3208", "0.3208"),
        ("- (4) P[1,0] = 1.6487 / 5.139 = 0.3208", "0.3208"),
        ("- (4) P[1,0] ≈ 0.3208", "0.3208"),
        ("- (4) P[1,0] 0.3208", "0.3208"),
        ("- (4) = 0.3208", "0.3208"),
        ("- (4) P[1,0] = `0.3208`", "0.3208"),
        ("- (4) P[1,0] = 0.3208 nats", "0.3208"),
        ("- (4) P[1,0] = 0.3208 (I think)", "0.3208"),
        ("> (4) P[1,0] = 3.2e-1 ?", "3.2e-1"),
        ("- (4) P[1,0] = 12 %", "12 %"),
        ("- (4) P[1,0] = 3 ln 2", "3 ln 2"),
        ("- (4) P[1,0] = −inf", "−inf"),
        ("- (4) P[1,0] = no idea", "no idea"),
        ("- (4) P[1,0] = ____", None),
        ("- (4) P[1,0] = ", None),
        ("- (4) P[1,0] = ________________", None),
        ("The fourth, (4), is 0.3208", None),
    ],
)
def test_an_answer_is_found(line: str, answer: str | None) -> None:
    wanted = {} if answer is None else {"pattern[t=1,s=0]": answer}
    assert read_blanks(f"# Title\n\n{line}\n\n- (5) P[1,1] = ____\n", SHEET) == wanted


def test_lines_that_an_editor_joined_are_told_apart() -> None:
    text = "(1) E[1,0] = 1.65 (2) E[1,1] = 3.49\n(3) ΣE[1] = 5.14 - (4) P[1,0]\n= 0.32"
    assert list(read_blanks(text, SHEET).values()) == ["1.65", "3.49", "5.14", "0.32"]


def test_a_number_in_parentheses_within_an_answer_is_not_a_box() -> None:
    assert read_blanks("(1) E[1,0] = e^ (2) = 7.39", SHEET) == {"pattern~0": "7.39"}


def test_a_number_that_no_box_has_is_a_remark_unless_it_is_answered() -> None:
    assert read_blanks("(0) of them\n\n(99) B = ____\n", SHEET) == {}
    for text in ("(0) A = 1", "(99) B = 2"):
        with pytest.raises(Damaged, match=re.escape(text.split()[0])):
            read_blanks(text, SHEET)


@pytest.mark.parametrize("part", ["e\n", "* ", "(1) (2) "])
def test_a_long_paragraph_takes_a_time_in_proportion_to_its_length(part: str) -> None:
    assert_not_quadratic(lambda n: lambda: read_blanks("a" + part * n, SHEET), 3_000)
