"""Review: the boxes of practised lessons whose skills are due again, in a sheet with other numbers."""

from dataclasses import replace
from datetime import datetime

from pellucid.learning.lessons.ladder import lesson_sheets, lessons
from pellucid.learning.sheets.history import Record, Skill
from pellucid.learning.sheets.sheet import Sheet


def make_review(record: Record, now: datetime | None = None) -> Sheet | str:
    """Returns a sheet in which the boxes of due skills are open and the others are shown; or a sentence that
    says why there is none.

    It is the sheet that asks the most due skills, of finished lessons where one asks any, else of those that
    the learner has begun: a mistake can be practised before its lesson is finished.
    """
    due = record.due(now)
    begun = [lesson for number, lesson in lessons().items() if record.progress(number).sheets]
    if not begun:
        return (
            "No sheet of a lesson is marked yet, so there is nothing to review: `pellucid learn` lists the "
            "lessons, `pellucid mark FILE` marks a sheet."
        )
    if not due:
        times = record.due_times()
        if not times:
            return "Nothing is due: no box of a sheet has been answered yet."
        first = min(times, key=times.__getitem__)
        return f"Nothing is due; {first} is next, on {times[first]:%Y-%m-%d}."
    finished = [lesson for lesson in begun if record.progress(lesson.number).is_finished]
    for among in (finished, begun):
        # with numbers that the learner has not seen
        seeds = {lesson: 1 + record.progress(lesson.number).sheets for lesson in among}
        sheets = [sheet for lesson, seed in seeds.items() for sheet in lesson_sheets(lesson, 2, seed)]
        best = max(sheets, key=lambda sheet: len(_find_skills(sheet) & set(due)), default=None)
        if best and (asked := [skill for skill in due if skill in _find_skills(best)]):
            return open_skills(best, asked)
    names = ", ".join(map(str, due))
    return f"No lesson that you have begun asks what is due: {names}."


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
