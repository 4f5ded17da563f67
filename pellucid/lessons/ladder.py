"""The ladder: every lesson by its number. The folders are the registry: a lesson is a page with its program
beside it, `c_examples/l15_backward.md` and `.py`, and nothing else lists it."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pellucid.errors import FileError, UsageError, did_you_mean
from pellucid.lessons import import_program
from pellucid.lessons.page import Page, read_page
from pellucid.lessons.program import LessonProgram
from pellucid.lessons.reference import References

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
        if page.head.number != self.number or page.head.part != self.part[0]:
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
    listed = ", ".join(map(str, table))
    raise UsageError(
        f"there is no lesson {asked!r}; the lessons are {listed}.{did_you_mean(str(asked), by_name)}"
    )
