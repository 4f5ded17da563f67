"""The ladder: every lesson by its number. The folders are the registry: a lesson is a page with its program
beside it, `c_examples/l15_backward.md` and `.py`, and nothing else lists it."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError, UsageError, did_you_mean, show, unknown
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons import import_program
from pellucid.learning.lessons.page import Page, SheetHead, TransferHead, read_page
from pellucid.learning.lessons.placeholders import References
from pellucid.learning.lessons.program import LessonProgram
from pellucid.learning.sheets.forms import apply_level
from pellucid.learning.sheets.history import Record, Skill
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.planted import find_visible_mistakes
from pellucid.learning.sheets.sheet import LEVELS, Sheet
from pellucid.model import load
from pellucid.verification.mistakes import resolve_mistake

FOLDER = Path(__file__).parent
_FILE = re.compile(r"l(?P<number>\d\d)_(?P<name>\w+)\.md")
_ASKED = re.compile(r"(?:lesson[- ]?)?(?P<number>\d{1,3})", re.IGNORECASE)


@dataclass(frozen=True)
class Lesson:
    """A page with its program."""

    path: Path

    @property
    def number(self) -> int:
        return int(self._found["number"])

    @property
    def name(self) -> str:
        """The name of its files, without the ending."""
        return self.path.stem

    @property
    def part(self) -> str:
        """The name of its folder."""
        return self.path.parent.name

    @property
    def title(self) -> str:
        return self.page.head.title

    @property
    def _found(self) -> re.Match[str]:
        found = _FILE.fullmatch(self.path.name)
        assert found is not None
        return found

    @cached_property
    def page(self) -> Page:
        page = read_page(self.path)
        if page.head.number != self.number or page.head.part.lower() != self.part[0]:
            raise FileError(
                f"{self.path}: the head says lesson {page.head.number} of part {page.head.part!r}; its file "
                f"is lesson {self.number} of part {self.part[0]!r}."
            )
        return page

    @cached_property
    def program(self) -> LessonProgram:
        return LessonProgram(import_program(self.part, self.name))

    @cached_property
    def references(self) -> References:
        return References(self.program, tuple(sheet.name for sheet in self.page.head.sheet))


@functools.cache
def lessons() -> Mapping[int, Lesson]:
    """Returns every lesson by its number, the smallest first."""
    files = (file for file in FOLDER.glob("?_*/l*.md") if _FILE.fullmatch(file.name))
    found = sorted((Lesson(file) for file in files), key=lambda lesson: lesson.number)
    table = {lesson.number: lesson for lesson in found}
    if len(table) < len(found):
        raise FileError("two lessons have one number; each page has its own.")
    return table


def find_lesson(asked: int | str) -> Lesson:
    """Returns a lesson by its number, given as 15, "15" or "lesson-15"; or by the name of its file."""
    table = lessons()
    found = _ASKED.fullmatch(str(asked).strip())
    if found and int(found["number"]) in table:
        return table[int(found["number"])]
    by_name = {lesson.name: lesson for lesson in table.values()}
    if str(asked) in by_name:
        return by_name[str(asked)]
    raise UsageError(
        f"there is no lesson {show(asked)}; the lessons are {list_lessons()}."
        f"{did_you_mean(str(asked)[:80], by_name)}"
    )


def list_lessons() -> str:
    """Returns every lesson as a command takes it, with its title: "lesson-13 (…), lesson-14 (…)"."""
    return ", ".join(f"lesson-{number} ({lesson.title})" for number, lesson in lessons().items())


# ---- worksheets

TRIES = 16
"""Examples that are tried until one shows every mistake of a lesson's list."""


def lesson_sheets(lesson: Lesson, level: int = 2, seed: int = 0) -> list[Sheet]:
    """Returns the sheets of a lesson, in the order of its head; level 3 is the one that is shipped.

    From `seed` on, the first example is taken in whose sheets every mistake of the lesson's list shows.
    """
    if level not in LEVELS:
        raise UsageError(f"a level is one of {', '.join(map(str, LEVELS))}, not {level!r}.")
    if level == 3:
        if lesson.program.transfer is None:
            raise UsageError(
                f"lesson {lesson.number} ships no sheet of level 3; its sheets have the levels 0, 1 and 2."
            )
        return [lesson.program.transfer]
    for number in range(seed, seed + TRIES):
        made = make_sheets(lesson, number)
        if not find_hidden_mistakes(lesson, made):
            return [replace(apply_level(sheet, level), seed=number) for sheet in made]
    raise UsageError(f"no example from seed {seed} on shows every mistake of lesson {lesson.number}; use 0.")


@functools.lru_cache(maxsize=16)
def make_sheets(lesson: Lesson, seed: int) -> tuple[Sheet, ...]:
    """Returns the sheets of one example, every step open."""
    traces = lesson.program.traces if seed == 0 else lesson.program.run(seed)
    made = list[Sheet]()
    heads = lesson.page.head.sheet
    for part, head in enumerate(heads, 1):
        run = head.run or next(iter(traces))
        if run not in traces:
            raise FileError(f"{lesson.path}: {unknown('the run of a sheet', run, traces)}")
        title = f"Lesson {lesson.number}: {lesson.title}" + f", {head.name}" * bool(head.name)
        source = {"part": part} if len(heads) > 1 else {}
        settings = sheet_settings(head)
        sheet = make_sheet(traces[run], head.focus, head.stop, title=title, source=source, **settings)
        made.append(replace(sheet, lesson=lesson.number, seed=seed))
    return tuple(made)


def sheet_settings(head: SheetHead | TransferHead) -> dict[str, Any]:
    """Returns the settings of `make_sheet` that a head gives."""
    given = {name: getattr(head, name) for name in ("boxes", "top", "digits")}
    return {name: value for name, value in given.items() if value is not None}


def find_hidden_mistakes(lesson: Lesson, sheets: Sequence[Sheet]) -> list[str]:
    """Returns the mistakes of the lesson's list that show in no box of its sheets."""
    shown = {name for sheet in sheets for name in find_visible_mistakes(sheet)}
    return [name for name in lesson.page.head.mistakes if resolve_mistake(name) not in shown]


# ---- the sheet of level 3: the lesson's step in a pretrained model, made where the model is, and shipped


def make_transfer(lesson: Lesson, model: str = "") -> Sheet:
    """Returns the sheet that the head of the lesson's page describes, from a run of its model; `model` is
    where that lies, by default its name in the library."""
    head = lesson.page.head.transfer
    if head is None:
        raise UsageError(f"the page of lesson {lesson.number} has no table [transfer].")
    has_gradients = any(at.startswith("d.") for at in head.focus)
    settings = (head.target, has_gradients, head.update, head.lr, head.only)
    trace = _trace(model or head.model, head.prompt, *settings)
    title = f"Lesson {lesson.number} in {head.model}: {lesson.title}"
    sheet = make_sheet(trace, head.focus, head.stop, title=title, **sheet_settings(head))
    return replace(sheet, lesson=lesson.number, level=3)


@functools.lru_cache(maxsize=1)
def _trace(
    model: str,
    prompt: str,
    target: str | None,
    backward: bool,
    update: str | None,
    lr: float | None,
    only: tuple[str, ...],
) -> Trace:
    """Returns the run of a pretrained model; the last one is kept, since several lessons read it."""
    return load(model).trace(prompt, target=target, backward=backward, update=update, lr=lr, only=only)


def find_transfer_file(lesson: Lesson) -> Path:
    """Returns where the shipped sheet of a lesson is."""
    return lesson.path.with_suffix(".transfer.json")


# ---- review: the boxes of practised lessons whose skills are due again, in a sheet with other numbers


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
