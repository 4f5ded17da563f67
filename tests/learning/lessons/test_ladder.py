"""Every lesson is a page of the right length without a typed number, a program and sheets; the folder lists
them."""

import os
import re
import runpy
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pellucid.base.errors import UsageError
from pellucid.learning.lessons.document import write_document, write_pictures
from pellucid.learning.lessons.ladder import (
    Lesson,
    find_hidden_mistakes,
    find_lesson,
    find_transfer_file,
    lesson_sheets,
    lessons,
    make_review,
    make_sheets,
    make_transfer,
)
from pellucid.learning.lessons.page import REFERENCE, WORDS, find_literals
from pellucid.learning.sheets.file import format_sheet
from pellucid.learning.sheets.history import Practice, Record, RecordEntry, Skill
from pellucid.learning.sheets.sheet import LEVELS, Sheet, significant_digits
from pellucid.reference.ops import find_op
from pellucid.verification.mistakes import SHEET_MISTAKES, resolve_mistake
from tests.cli.commands import Shell
from tests.learning.sheets.test_make_random import check_marking

COMMANDS = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
every_lesson = pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.name)


@every_lesson
def test_a_page_types_no_number(lesson: Lesson) -> None:
    sections = [(section.line, section.text) for section in lesson.page.sections]
    found = [(line + at, number) for line, text in sections for at, number in find_literals(text)]
    assert not found, "\n".join(f"{lesson.path}:{line}: {number}" for line, number in found)
    assert not find_literals(f"{lesson.title}\n{lesson.page.head.goal}")


@every_lesson
def test_a_page_has_600_to_1500_words(lesson: Lesson) -> None:
    least, most = WORDS
    assert least <= lesson.page.words <= most


@every_lesson
def test_every_reference_and_link_leads_somewhere(lesson: Lesson) -> None:
    text = "\n".join(write_document(lesson))
    assert not REFERENCE.search(text) and "[[" not in text
    for name in lesson.page.head.code:
        find_op(name)


@every_lesson
def test_what_a_lesson_needs_exists_and_comes_before_it(lesson: Lesson) -> None:
    assert all(find_lesson(number).number < lesson.number for number in lesson.page.head.needs)


@every_lesson
def test_every_picture_is_on_the_page_small_and_whole(lesson: Lesson) -> None:
    text = "\n".join(write_document(lesson))
    for name, svg in write_pictures(lesson).items():
        assert f"]({name})" in text, name
        assert len(svg.encode()) < 60_000 and "nan" not in svg
        ElementTree.fromstring(svg)


@every_lesson
def test_a_program_runs_alone_and_prints_the_example(
    lesson: Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(lesson.path.with_suffix(".py")), run_name="__main__")
    out = capsys.readouterr().out
    assert all(f"=== {name}\n" in out for name in lesson.program.traces)


@every_lesson
def test_every_mistake_of_a_lesson_is_known_and_shows_in_its_sheets(lesson: Lesson) -> None:
    assert {resolve_mistake(name) for name in lesson.page.head.mistakes} <= set(SHEET_MISTAKES)
    assert not find_hidden_mistakes(lesson, make_sheets(lesson, 0))


@every_lesson
@pytest.mark.parametrize("level", LEVELS)
def test_the_key_of_a_sheet_is_right_and_so_is_a_learner_who_rounds(lesson: Lesson, level: int) -> None:
    for sheet in lesson_sheets(lesson, level):
        assert (sheet.lesson, sheet.level) == (lesson.number, level)
        check_marking(sheet)


@every_lesson
def test_another_seed_is_another_example_that_shows_every_mistake(lesson: Lesson) -> None:
    first, second = lesson_sheets(lesson)[0], lesson_sheets(lesson, seed=1)[0]
    assert second.seed >= 1 and first.key != second.key


@every_lesson
def test_the_commands_of_a_page_run(
    lesson: Lesson, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shell = Shell(capsys, monkeypatch)
    blocks = [block for part in lesson.page.sections for block in COMMANDS.findall(part.text)]
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    assert bool(lines) == any("```sh" in part.text for part in lesson.page.sections)
    for line in (line for line in lines if line.strip() and not line.lstrip().startswith("#")):
        program, *arguments = shlex.split(line)
        done = shell(*arguments)
        assert (program, done.code) == ("pellucid", 0), f"{line}\n{done.err}"


@pytest.mark.parametrize("asked", ["lesson-13", "13", 13, "Lesson 13", "l13_forward"])
def test_a_lesson_is_found_by_its_number_or_name(asked: int | str) -> None:
    assert find_lesson(asked).number == 13


@pytest.mark.parametrize("asked", ["lesson-99", "", "l13_foward", "-13", "1e1", "\0", "x" * 100_000])
def test_a_lesson_that_is_not_there_is_refused_with_those_that_are(asked: str) -> None:
    with pytest.raises(UsageError, match="13"):
        find_lesson(asked)


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="0, 1, 2, 3"):
        lesson_sheets(find_lesson(13), 4)


NOW = datetime(2026, 1, 31, tzinfo=UTC)
SOFTMAX = Skill("softmax", "fwd")
EINSUM = Skill("einsum", "fwd")


def make_entry(days: int, lesson: int | None = 13, **verdicts: int) -> RecordEntry:
    """Returns an entry so many days ago in which each box of two skills was right, or as given."""
    softmax = Practice(verdicts or {"right": 4})
    skills = {SOFTMAX: softmax, EINSUM: Practice({"right": 4})}
    return RecordEntry(NOW - timedelta(days), "A sheet", lesson, 2, 0, skills)


def test_the_boxes_of_a_due_skill_are_open_and_the_others_shown() -> None:
    finished, wrong = make_entry(10), make_entry(0, lesson=None, wrong=1)
    record = Record((finished, wrong))
    assert SOFTMAX in record.due(NOW) and EINSUM not in record.due(NOW)
    sheet = make_review(record, NOW)
    assert isinstance(sheet, Sheet)
    assert {Skill(box.op, box.phase) for box in sheet.boxes if not box.shown} == {SOFTMAX}
    assert {box.shown for box in sheet.boxes if box.op != "softmax"} != {""}


def test_a_review_has_numbers_that_the_learner_has_not_seen() -> None:
    sheet = make_review(Record((make_entry(10),)), NOW)
    (seen, *_) = lesson_sheets(find_lesson(13))
    assert isinstance(sheet, Sheet) and sheet.seed > 0 and sheet.lesson == 13
    assert sheet.source["prompts"] != seen.source["prompts"]


@pytest.mark.parametrize(
    ("record", "fact"),
    [
        (Record(), "pellucid learn"),
        (Record((make_entry(0),)), "2026-02-01"),
    ],
    ids=["no record", "nothing due"],
)
def test_a_review_of_nothing_is_a_sentence(record: Record, fact: str) -> None:
    message = make_review(record, NOW)
    assert isinstance(message, str) and fact in message


def test_a_mistake_can_be_practised_before_its_lesson_is_finished() -> None:
    begun = Record((make_entry(1, wrong=1, right=3),))
    assert not begun.progress(13).is_finished
    sheet = make_review(begun, NOW)
    assert isinstance(sheet, Sheet) and sheet.lesson == 13
    assert SOFTMAX in {Skill(box.op, box.phase) for box in sheet.boxes if not box.shown}


def test_a_skill_is_named_in_words() -> None:
    assert [str(skill) for skill in (EINSUM, Skill("softmax_back", "bwd"), Skill("sgd", "upd"))] == [
        "sums of products (forward)",
        "softmax (backward)",
        "sgd (update)",
    ]


MODEL = os.environ.get("PELLUCID_SMOLLM2", "")
needs_the_model = pytest.mark.skipif(not MODEL, reason="PELLUCID_SMOLLM2 names no file")
GRADIENTS = {
    number
    for number, lesson in lessons().items()
    if (head := lesson.page.head.transfer) and any(at.startswith("d.") for at in head.focus)
}
"""Lessons whose sheet needs a backward pass through the whole model, half a minute."""


@pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.name)
def test_every_lesson_ships_a_sheet_of_at_most_40_boxes(lesson: Lesson) -> None:
    sheet = lesson.program.transfer
    assert sheet is not None and (sheet.lesson, sheet.level) == (lesson.number, 3)
    assert len(sheet.boxes) <= 40
    assert find_transfer_file(lesson).stat().st_size <= 200_000


def test_an_attention_row_asks_at_most_20_boxes_from_numbers_of_at_most_6_digits() -> None:
    sheet = find_lesson(13).program.transfer
    assert sheet is not None and len(sheet.boxes) <= 20
    assert all(significant_digits(given.text) <= 6 for given in sheet.given.values())


def remake(lesson: Lesson) -> None:
    path = str(Path(MODEL).expanduser())
    assert format_sheet(make_transfer(lesson, path)) == find_transfer_file(lesson).read_text("utf-8")


@needs_the_model
@pytest.mark.parametrize("number", sorted(set(lessons()) - GRADIENTS))
def test_a_shipped_sheet_is_what_the_model_gives(number: int) -> None:
    remake(find_lesson(number))


@needs_the_model
@pytest.mark.torture
@pytest.mark.parametrize("number", sorted(GRADIENTS))
def test_a_shipped_sheet_of_gradients_is_what_the_model_gives(number: int) -> None:
    remake(find_lesson(number))
