"""Review: the boxes of finished lessons whose skills are due again, in a sheet with other numbers."""

from dataclasses import replace
from datetime import datetime

from pellucid.lessons.ladder import Lesson, lesson_sheets, lessons
from pellucid.sheets.record import Record, Skill
from pellucid.sheets.sheet import Sheet


def make_review(record: Record, now: datetime | None = None) -> Sheet | str:
    """Returns a sheet of a finished lesson in which the boxes of due skills are open and the others are
    shown; or a sentence that says why there is none.

    Of all sheets of finished lessons it is the one that asks the most due skills.
    """
    due = record.due(now)
    finished = [lesson for number, lesson in lessons().items() if record.progress(number).is_finished]
    if not finished:
        return (
            "No lesson is finished yet: a lesson is, when every box of its sheet of level 2 or 3 is right. "
            "`pellucid learn` lists them."
        )
    if not due:
        times = record.due_times()
        first = min(times, key=times.__getitem__)
        return f"Nothing is due; {first} is next, on {times[first]:%Y-%m-%d}."
    sheets = [sheet for lesson in finished for sheet in _make_sheets(record, lesson)]
    best = max(sheets, key=lambda sheet: len(_find_skills(sheet) & set(due)))
    asked = [skill for skill in due if skill in _find_skills(best)]
    if not asked:
        names = ", ".join(map(str, due))
        return f"No finished lesson asks what is due: {names}."
    return open_skills(best, asked)


def _make_sheets(record: Record, lesson: Lesson) -> list[Sheet]:
    """Returns the sheets of a lesson with numbers that the learner has not seen."""
    return lesson_sheets(lesson, 2, seed=1 + record.progress(lesson.number).sheets)


def _find_skills(sheet: Sheet) -> set[Skill]:
    return {Skill(box.op, box.phase) for box in sheet.boxes}


def open_skills(sheet: Sheet, skills: list[Skill]) -> Sheet:
    """Returns the sheet with the boxes of these skills open, and every other box shown."""
    boxes = (
        replace(box, shown="" if Skill(box.op, box.phase) in skills else box.format(sheet.key[box.key]))
        for box in sheet.boxes
    )
    title = f"Review: {', '.join(map(str, skills))}. {sheet.title}"
    return replace(sheet, title=title, boxes=tuple(boxes), level=1)
