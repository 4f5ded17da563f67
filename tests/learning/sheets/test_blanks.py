"""The answer lines of a Markdown sheet: found however carelessly the file was edited."""

import base64
import hashlib
import re
import textwrap
import zlib

import pytest

from pellucid.base.files import Damaged
from pellucid.learning.sheets.blanks import MOST_BYTES, read_blanks, read_data_line, write_data_line
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


TEXT = '{"title": "a → b -->", "numbers": [1, 2, 3]}'


def pack(packed: bytes) -> str:
    checksum = hashlib.sha256(packed).hexdigest()[:16]
    return f"<!-- pellucid-sheet {checksum} {base64.b64encode(packed).decode()} -->"


def test_a_text_comes_back_also_where_its_line_was_wrapped() -> None:
    line = write_data_line(TEXT)
    for page in (line, f"# A\n\n{line}\n", f"# A\n{textwrap.fill(line, 40, break_on_hyphens=False)}"):
        found = read_data_line(page)
        assert found is not None and found.text == TEXT and page[found.start :].startswith("<!--")


def test_a_page_without_a_line_has_no_data() -> None:
    assert read_data_line("# A sheet\n<!-- another comment -->\n") is None


def test_any_other_letter_in_the_line_is_found_by_its_checksum() -> None:
    line = write_data_line(TEXT)
    start = line.index("sheet ") + len("sheet ")
    for i in range(start, len(line) - 4):
        other = "A" if line[i] != "A" else "B"
        with pytest.raises(Damaged, match="checksum"):
            read_data_line(line[:i] + other + line[i + 1 :])


@pytest.mark.parametrize(
    ("packed", "fact"),
    [
        (zlib.compress(b" " * (MOST_BYTES + 1)), "more than 4,000,000 bytes"),
        (zlib.compress(b" " * 10**8, 9), "more than 4,000,000 bytes"),
        (zlib.compress(b"{}")[:-2], "not one compressed text"),
        (zlib.compress(b"{}") + b"more", "not one compressed text"),
        (zlib.compress(b"\xff"), "cannot be unpacked"),
        (b"no zlib", "cannot be unpacked"),
        (b"", "not one compressed text"),
    ],
    ids=range(7),
)
def test_a_line_that_unpacks_to_something_else_is_refused(packed: bytes, fact: str) -> None:
    with pytest.raises(Damaged, match=fact):
        read_data_line(pack(packed))
