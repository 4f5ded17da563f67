"""Every lesson is a page of the right length without a typed number, a program and sheets; the folder lists
them."""

import re
import runpy
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pellucid.base.errors import UsageError
from pellucid.learning.lessons.document import write_document, write_pictures
from pellucid.learning.lessons.ladder import (
    Lesson,
    find_hidden_mistakes,
    find_lesson,
    lesson_sheets,
    lessons,
    make_sheets,
)
from pellucid.learning.lessons.page import REFERENCE, WORDS, find_literals
from pellucid.learning.sheets.sheet import LEVELS
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
