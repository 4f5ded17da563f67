"""The pages of a sheet: complete, safe with any text, without a script or a request, and printable."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from pellucid.learning.sheets.blanks import read_blanks
from pellucid.learning.sheets.forms import apply_form
from pellucid.learning.sheets.page import write_html, write_markdown
from pellucid.learning.sheets.sheet import Sheet, format_answer
from tests.learning.sheets.small_sheets import make_softmax_sheet

SHEET = make_softmax_sheet()
ANSWERS = {box.key: format_answer(SHEET.key[box.key], box.decimals) for box in SHEET.boxes}
WORKED = dataclasses.replace(
    SHEET, boxes=tuple(dataclasses.replace(box, shown=ANSWERS[box.key]) for box in SHEET.boxes)
)


class Page(HTMLParser):
    """Reads a page: its tags, its text, and whether each tag is closed."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_student_copy_has_every_number_and_no_answer() -> None:
    for text in (write_markdown(SHEET), Page(write_html(SHEET, "code")).text):
        for given in SHEET.given.values():
            assert given.text.replace("-", "−") in text or given.text in text
        assert not [answer for answer in ANSWERS.values() if answer in text]
        assert "pellucid mark" in text


def test_a_box_for_each_number_that_is_asked() -> None:
    assert write_html(SHEET, "code").count('<span class="box"') == len(SHEET.boxes)
    assert write_markdown(SHEET).count("____") == len(SHEET.boxes)
    assert '<span class="box"' not in write_html(WORKED, "code") and "____" not in write_markdown(WORKED)


@pytest.mark.parametrize("key", [False, True])
def test_a_worked_sheet_and_a_key_have_every_answer(key: bool) -> None:
    sheet = SHEET if key else WORKED
    for text in (write_markdown(sheet, key), Page(write_html(sheet, "code", key)).text):
        assert all(answer in text for answer in ANSWERS.values())
        assert "pellucid mark" not in text


def test_the_answers_of_a_page_are_read_from_it() -> None:
    assert read_blanks(write_markdown(SHEET), SHEET) == {}
    assert read_blanks(write_markdown(SHEET, key=True), SHEET) == ANSWERS
    answered = dataclasses.replace(SHEET, answers={"nll": "ln 2", "pattern~0": "1,65"})
    assert read_blanks(write_markdown(answered), SHEET) == answered.answers


def hostile() -> Sheet:
    """Returns a sheet whose every text tries to leave its place."""
    evil = '</td><script src="http://x/">&`|[a](b)\n\n# (1) = 3\x1b[2J'
    boxes = tuple(
        dataclasses.replace(box, symbol=evil, meaning=evil, step=evil, formula=evil, phase=evil)
        for box in SHEET.boxes
    )
    given = {f"{key}": dataclasses.replace(one, symbol=evil) for key, one in SHEET.given.items()}
    source = {"model": evil, "prompts": [evil], "targets": [evil], "update": {evil: evil}}
    labels = {"t": (evil, evil), "s": (evil, evil)}
    return dataclasses.replace(SHEET, title=evil, boxes=boxes, given=given, source=source, labels=labels)


@pytest.mark.parametrize("sheet", [SHEET, WORKED, hostile()], ids=["plain", "worked", "hostile"])
@pytest.mark.parametrize("key", [False, True])
def test_a_page_has_no_script_and_asks_nothing_of_the_network(sheet: Sheet, key: bool) -> None:
    text = write_html(sheet, "code", key)
    page = Page(text)
    assert page.open == ["html"] or not page.open
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    assert not [
        name for name, _ in page.attributes if name in ("src", "href", "style") or name.startswith("on")
    ]
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]
    assert "\x1b" not in text


def test_a_hostile_text_stays_on_its_line_of_markdown() -> None:
    lines = write_markdown(hostile()).splitlines()
    assert not [line for line in lines if line.startswith("# (1)")]
    assert "<script" not in "\n".join(line for line in lines if "`" not in line)


def test_a_question_about_the_sheet_belongs_to_no_pass_and_its_page_names_its_form() -> None:
    found = apply_form(dataclasses.replace(SHEET, lesson=15), "find")
    assert write_markdown(found).count("## Forward pass") == 1
    assert "--form find" in write_html(found, "code")


def test_a_page_is_made_for_paper() -> None:
    text = write_html(SHEET, "code")
    assert "@page" in text and "break-inside: avoid" in text and "--paper: #fff; --ink: #000" in text


def test_a_lesson_s_page_says_which_command_writes_the_file_to_type_into() -> None:
    text = write_html(dataclasses.replace(SHEET, lesson=15, seed=3, source={"part": 2}), "code")
    assert "pellucid sheet lesson-15 --level 2 --seed 3 --part 2 -o FILE.md" in text
