"""`pellucid learn`: the lessons, how far the learner is, and a lesson to read."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.base.columns import shorten
from pellucid.cli.terminal import count_columns

if TYPE_CHECKING:
    from pellucid.learning.lessons.ladder import Lesson
    from pellucid.learning.sheets.history import Progress, Record

WIDTH = 80


def learn(
    lesson: Annotated[
        str | None, typer.Argument(help="A lesson to read: 15, or lesson-15; without it, all are listed.")
    ] = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Show the answers of the exercises, and cover no number.")
    ] = False,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not add numbers that you peeked at to your record.")
    ] = False,
) -> None:
    """Read a lesson, section by section; numbers that its worksheet asks are covered until you predict them.

    Without a lesson: the ladder with what each lesson needs, your progress, and what is due again. In a pipe
    the whole lesson is printed as plain text, with nothing covered.
    """
    from pellucid.learning.lessons.ladder import find_lesson

    if lesson is None:
        _print_ladder()
        return
    found = find_lesson(lesson)
    if sys.stdin.isatty() and sys.stdout.isatty():
        from pellucid.cli.learn_screen import LessonScreen

        LessonScreen(found, shows_answers=answers, keeps_record=not no_record).show()
    else:
        from pellucid.learning.lessons.terminal import write_text

        for line in write_text(found, WIDTH, answers):
            print(line)


# ---- the ladder


def _print_ladder() -> None:
    from pellucid.learning.lessons.ladder import lessons
    from pellucid.learning.sheets.history import read_record

    record, width = read_record(), count_columns(0, sys.maxsize, WIDTH)
    states = {number: record.progress(number) for number in lessons()}
    texts = {number: _format_state(progress) for number, progress in states.items()}
    rows = [("", "lesson", "needs", "right")]
    for number, lesson in lessons().items():
        rows.append((str(number), lesson.title, " ".join(map(str, lesson.page.head.needs)), texts[number]))
    _, titles, *beside = (max(map(len, column)) for column in zip(*rows, strict=True))
    room = min(titles, max(width - sum(beside) - 9, 16))
    for digits, title, needs, state in rows:
        cells = f"{digits:>3}  {shorten(title, room):<{room}}  {needs:<{beside[0]}}  {state}"
        print(shorten(cells.rstrip(), max(width, 30)))
    print()
    _print_due(record)
    following = _find_next(states)
    if following is not None:
        print(f"Next: pellucid learn {following.number}")


def _format_state(progress: "Progress") -> str:
    """Returns how far the learner is: "finished", or the best result at the highest level begun."""
    if progress.is_finished:
        return "finished"
    if not progress.best:
        return "begun" if progress.peeks else ""
    level = max(progress.best)
    right, asked = progress.best[level]
    return f"{right} of {asked}"


def _print_due(record: "Record") -> None:
    due = record.due()
    if due:
        listed = ", ".join(map(str, due[:6])) + f" and {len(due) - 6} more" * (len(due) > 6)
        print(f"Due for review: {listed}. pellucid sheet review -o review.md")


def _find_next(states: "dict[int, Progress]") -> "Lesson | None":
    """Returns the first lesson that is not finished and whose needs are."""
    from pellucid.learning.lessons.ladder import lessons

    done = {number for number, progress in states.items() if progress.is_finished}
    ready = (lesson for lesson in lessons().values() if set(lesson.page.head.needs) <= done)
    return next((lesson for lesson in ready if lesson.number not in done), None)
