"""Levels fade the worked steps: all shown, the last step of each part open, all open."""

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.learning.sheets.levels import apply_level
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.sheet import Sheet


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return make_sheet(pellucid.trace("abcd", "A B"), ["probs[t=1]"], boxes=100)


def test_level_0_shows_every_answer_of_the_key(sheet: Sheet) -> None:
    worked = apply_level(sheet, 0)
    assert all(float(box.shown) == pytest.approx(sheet.key[box.key], abs=1e-4) for box in worked.boxes)


def test_level_1_leaves_the_last_step_of_each_part_open(sheet: Sheet) -> None:
    boxes = apply_level(sheet, 1).boxes
    steps = {box.step for box in boxes if not box.shown}
    assert steps == {"blocks.0.attn.z", "probs"}
    assert {box.step for box in boxes} > steps


def test_a_sheet_says_its_level(sheet: Sheet) -> None:
    assert [apply_level(sheet, level).level for level in (0, 1, 2)] == [0, 1, 2]


def test_level_2_shows_nothing(sheet: Sheet) -> None:
    assert not any(box.shown for box in apply_level(apply_level(sheet, 0), 2).boxes)


def test_level_3_is_another_model_s_sheet(sheet: Sheet) -> None:
    with pytest.raises(UsageError):
        apply_level(sheet, 3)
