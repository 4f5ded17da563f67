"""One mistake planted in one box makes that box wrong, no other, and is named there."""

import pytest

import pellucid
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.mark import Grade, mark_sheet
from pellucid.learning.sheets.planted import (
    Plant,
    answer_sheet,
    find_plants,
    find_visible_mistakes,
    is_visible,
)
from pellucid.learning.sheets.sheet import Sheet


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return make_sheet(pellucid.trace("example-3", "A B", target="C"), ["probs[t=1]"], boxes=40)


def test_without_a_mistake_no_box_is_wrong(sheet: Sheet) -> None:
    assert mark_sheet(answer_sheet(sheet)).first_wrong is None


def test_a_planted_mistake_is_the_only_wrong_box_and_is_named(sheet: Sheet) -> None:
    box = sheet.by_key["blocks.0.attn.scores[t=1,s=1]"]
    plant = Plant(box, "scores without 1/√D", box.mistakes["scores without 1/√D"])
    answered = answer_sheet(sheet, plant)
    assert answered.answers[box.key] == "2.0000"
    wrong = [marked for marked in mark_sheet(answered).boxes if marked.grade is Grade.WRONG]
    assert [marked.box.key for marked in wrong] == [box.key]
    assert plant.mistake in [found.name for found in wrong[0].mistakes]


def test_what_cannot_be_seen_is_not_planted(sheet: Sheet) -> None:
    plants = list(find_plants(sheet))
    assert plants
    assert all(is_visible(sheet, box, rule) for box, _, rule in plants)
    assert {"scores without 1/√D", "matrix transposed"} <= find_visible_mistakes(sheet)
    assert "no mask" not in find_visible_mistakes(sheet)  # the last query sees every key
