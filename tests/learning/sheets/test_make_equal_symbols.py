"""Which symbols are equal on a sheet is read from its run: what a mask or one head leaves as it is."""

import pytest

import pellucid
from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets
from pellucid.learning.sheets.layout import describe_run
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.page import write_html, write_markdown


def equal(lesson: int, part: int = 1) -> list[str]:
    return list(lesson_sheets(find_lesson(lesson))[part - 1].source.get("equal", []))


@pytest.mark.parametrize(
    ("lesson", "part", "wanted"),
    [
        (13, 1, ["M = S where it is not −∞", "O = Z"]),
        (14, 1, ["O@1 = O"]),
        (15, 1, ["O = Z", "dZ = dO", "dS = dM"]),
        (15, 2, ["dO = G"]),
        (18, 1, []),
        (19, 3, ["X = X_post⁰", "M = S where it is not −∞"]),
    ],
)
def test_a_symbol_without_numbers_of_its_own_is_said_to_equal_another(
    lesson: int, part: int, wanted: list[str]
) -> None:
    assert equal(lesson, part) == wanted


def test_where_no_mask_changes_a_row_it_is_derived_from_the_run_of_any_model() -> None:
    sheet = make_sheet(pellucid.trace("abcd", "A B"), ["blocks.0.attn.pattern[t=1]"])
    assert sheet.source["equal"] == ["M = S where it is not −∞"]
    assert ("equal here", "M = S where it is not −∞") in describe_run(sheet)
    for page in (write_markdown(sheet), write_html(sheet, "code")):
        assert "equal here" in page and "M = S" in page
