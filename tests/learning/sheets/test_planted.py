"""One mistake planted in one box makes that box wrong, no other, and is named there."""

import itertools
from collections import Counter

import pytest

import pellucid
from pellucid.learning.lessons.ladder import lessons, make_sheets
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.planted import (
    PlantOutcome,
    find_plants,
    find_visible_mistakes,
    is_visible,
    mark_plant,
)
from pellucid.learning.sheets.sheet import Sheet
from pellucid.verification.mistakes import MISTAKES, SHEET_MISTAKES
from scripts.mistakes_table import list_catalogue, list_lesson


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return make_sheet(pellucid.trace("example-3", "A B", target="C"), ["probs[t=1]"], boxes=40)


def test_what_cannot_be_seen_is_not_planted(sheet: Sheet) -> None:
    plants = list(find_plants(sheet))
    assert plants
    assert all(is_visible(sheet, box, rule) for box, _, rule in plants)
    assert {"scores without 1/√D", "matrix transposed"} <= find_visible_mistakes(sheet)
    assert "no mask" not in find_visible_mistakes(sheet)  # the last query sees every key


OWN_NAME = 0.95
"""The least share of mistakes that are named for what they are; the others give another mistake's number."""
STRIDE = 12
"""Of this many mistakes `make test` plants one."""
FEW = 0.9
"""The least share in a sample, which may meet more of the others."""


def plant_mistakes(stride: int) -> Counter[PlantOutcome]:
    """Plants every stride-th mistake of all lessons; one that is not at its box or has no name fails."""
    outcomes = Counter[PlantOutcome]()
    for number, lesson in lessons().items():
        shipped = lesson.program.transfer
        for sheet in (*make_sheets(lesson, 0), *([shipped] if shipped else [])):
            for plant in itertools.islice(find_plants(sheet), number % stride, None, stride):
                outcome = mark_plant(sheet, plant)
                assert outcome in (PlantOutcome.OWN_NAME, PlantOutcome.OTHER_NAME), (
                    f"lesson {number}: {plant.mistake} in {plant.box.key} is found {outcome}"
                )
                outcomes[outcome] += 1
    return outcomes


def test_a_planted_mistake_is_the_only_wrong_box_and_has_a_name() -> None:
    outcomes = plant_mistakes(STRIDE)
    assert outcomes[PlantOutcome.OWN_NAME] >= FEW * outcomes.total()


@pytest.mark.torture
def test_every_planted_mistake_is_the_only_wrong_box_and_nearly_all_have_their_own_name() -> None:
    outcomes = plant_mistakes(1)
    assert outcomes[PlantOutcome.OWN_NAME] >= OWN_NAME * outcomes.total()


def test_the_table_lists_every_mistake_and_what_the_sheets_of_a_lesson_show() -> None:
    names = {*MISTAKES, *SHEET_MISTAKES}
    listed = [line for line in list_catalogue() if line.partition("  ")[0] in names]
    assert len(listed) == len(names)
    assert all("marking" in line or "compare" in line for line in listed)
    about = "\n".join(list_lesson(13))
    assert "e^ omitted" in about
    assert "too small to be seen: mask after the softmax" in about
