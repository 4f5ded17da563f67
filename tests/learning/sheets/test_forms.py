"""Other forms of a sheet: signs, and a mistake to find. The same program, asked otherwise."""

import dataclasses

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.explanation.rule import RuleCall
from pellucid.learning.sheets.file import from_json, to_json
from pellucid.learning.sheets.forms import FORM_MAKERS, apply_form, apply_level
from pellucid.learning.sheets.layout import lay_out_steps
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.sheet import FORMS, Sheet
from tests.learning.sheets.small_sheets import make_softmax_sheet

SHEET = make_softmax_sheet()


def focus_on(*keys: str) -> Sheet:
    boxes = (dataclasses.replace(box, focus=box.key in keys) for box in SHEET.boxes)
    return dataclasses.replace(SHEET, boxes=tuple(boxes))


def test_every_form_is_known_to_the_file_format() -> None:
    assert set(FORM_MAKERS) == set(FORMS)
    for form in FORM_MAKERS:
        made = apply_form(SHEET, form)
        assert from_json(to_json(made)) == made


def test_a_sign_is_asked_from_the_printed_numbers_before_it() -> None:
    made = apply_form(focus_on("nll", "z[t=1,c=0]"), "sign")
    assert made.key["nll"] == made.key["z[t=1,c=0]"] == 1 and all(box.exact for box in made.boxes)
    assert made.given["pattern[t=1,s=1]"].text == "0.6792" and "scores[t=1,s=0]" not in made.given


@pytest.mark.parametrize(("number", "sign"), [("2", 1), ("0", 0), ("-2", -1)])
def test_a_sign_is_1_or_0_or_minus_1(number: str, sign: int) -> None:
    given = {**SHEET.given, "v[s=0,c=0]": dataclasses.replace(SHEET.given["v[s=0,c=0]"], text=number)}
    box = dataclasses.replace(SHEET.boxes[0], rule=RuleCall("multiply", ("v[s=0,c=0]", 3.0)), focus=True)
    made = apply_form(dataclasses.replace(SHEET, given=given, boxes=(box,), checks=()), "sign")
    assert made.key[box.key] == sign


def test_of_numbers_that_read_each_other_the_sign_of_the_earlier_is_asked() -> None:
    made = apply_form(focus_on("pattern~0", "pattern~2"), "sign")
    assert [box.key for box in made.boxes] == ["pattern~0"] and "pattern~0" not in made.given


def test_a_worked_sheet_holds_one_mistake_and_asks_for_its_box() -> None:
    made = apply_form(SHEET, "find")
    *worked, asked = made.boxes
    wrong = [i for i, box in enumerate(worked, 1) if box.rule != SHEET.boxes[i - 1].rule]
    assert wrong == [made.key["find"]] and asked.form == "find" and not asked.shown
    assert all(box.shown for box in worked) and not made.checks


def test_the_boxes_after_a_mistake_go_on_from_it() -> None:
    made = apply_form(SHEET, "find")
    number = int(made.key["find"])
    lines = [line for section in lay_out_steps(made) for line in section.lines]
    assert SHEET.boxes[number - 1].symbol in ("P[1,0]", "P[1,1]")
    assert lines[number - 1].answer in ("1.6487", "3.4903")
    assert lines[number - 1].answer in lines[5].work or lines[number - 1].answer in lines[6].work


def test_a_seed_chooses_the_mistake() -> None:
    seeds = (dataclasses.replace(SHEET, seed=seed) for seed in range(8))
    assert {apply_form(sheet, "find").key["find"] for sheet in seeds} == {4, 5}


def test_a_sheet_without_mistakes_has_none_to_find() -> None:
    boxes = tuple(dataclasses.replace(box, mistakes={}) for box in SHEET.boxes)
    with pytest.raises(UsageError, match="no mistake"):
        apply_form(dataclasses.replace(SHEET, boxes=boxes), "find")


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
