"""Review asks what is due from lessons that were practised, with numbers that are new."""

from datetime import UTC, datetime, timedelta

import pytest

from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets, make_review
from pellucid.learning.sheets.history import Practice, Record, RecordEntry, Skill
from pellucid.learning.sheets.sheet import Sheet

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
