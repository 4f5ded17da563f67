"""The shipped sheets of level 3 are small enough to do by hand, and are what the pretrained model gives."""

import os
from pathlib import Path

import pytest

from pellucid.learning.lessons.ladder import Lesson, find_lesson, find_transfer_file, lessons, make_transfer
from pellucid.learning.sheets.file import format_sheet
from pellucid.learning.sheets.sheet import significant_digits

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
