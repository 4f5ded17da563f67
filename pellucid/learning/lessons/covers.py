"""Covered numbers: what a lesson's sheet asks is hidden on its page until the reader has predicted it."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pellucid.learning.lessons.ladder import Lesson, make_sheets
from pellucid.learning.lessons.page import REFERENCE
from pellucid.learning.lessons.placeholders import PageNumber, PageNumbers, PageTable, format_value
from pellucid.learning.sheets.answers import is_equal, parse_answer
from pellucid.learning.sheets.file import fill_key
from pellucid.learning.sheets.history import Skill
from pellucid.learning.sheets.mark import STAGES, Grade, MarkedBox, Marking, make_hint, mark_sheet
from pellucid.learning.sheets.sheet import Box, Sheet, significant_digits

SIGNIFICANT = 3
"""The digits by which a number is recognized in a picture; one with fewer stands there for many others."""
_SIGNS = {"+": 1, "-": -1, "−": -1}
_NUMBER = re.compile(r"(?<![\w.@])[-−]?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_ROW = re.compile(r"\s*(\S+) = (?=\()")
"""The beginning of a row of a picture, `Q = (2, 0)`; its numbers, whole ones too, are those of one value."""
_COMPARISON = re.compile(r"([<>])\s*(.+)")


class Judgment(NamedTuple):
    """Whether a prediction is right, and what is said about it."""

    is_right: bool
    text: str


@dataclass(frozen=True)
class Cover:
    """A covered number: the box that asks it, and the sheet of the box."""

    sheet: Sheet
    box: Box

    @property
    def skill(self) -> Skill:
        return Skill(self.box.op, self.box.phase)

    @property
    def name(self) -> str:
        """The symbol of the number with its meaning: "P[1,0], attention pattern"."""
        term = self.box.meaning.partition(":")[0]
        return f"{self.box.symbol}, {term}" if term else self.box.symbol

    @property
    def value(self) -> str:
        """The number as a page prints it."""
        return format_value(self.sheet.key[self.box.key], self.box.decimals)

    def judge(self, prediction: str, is_last: bool = True) -> "Judgment | None":
        """Returns what a prediction is worth: a number, a sign (+ or -), or a comparison (< 0.5, > 0.5); None
        where it is none of these.

        A wrong number is looked for among the usual mistakes, as in a marked sheet. Where it is not the last
        try, a wrong one is answered with a hint instead of the number.
        """
        text = prediction.strip()
        if text in _SIGNS:
            return self._say(self.sheet.key[self.box.key] * _SIGNS[text] > 0, is_last=is_last)
        if found := _COMPARISON.fullmatch(text):
            limit = parse_answer(found[2])
            if limit is None:
                return None
            difference = self.sheet.key[self.box.key] - limit.value
            return self._say(difference > 0 if found[1] == ">" else difference < 0, is_last=is_last)
        if parse_answer(text) is None:
            return None
        _, marked = self._mark(text)
        if marked.grade in (Grade.RIGHT, Grade.FROM_YOURS, Grade.ROUNDING):
            return self._say(True, marked.note)
        return self._say(False, " or ".join(map(str, marked.mistakes)), is_last)

    def hint(self, stage: int) -> str:
        """Returns a hint, from 1 to 3; the value itself is not one of them."""
        marking, marked = self._mark("")
        return make_hint(marking, marked, min(stage, STAGES[-2]))

    def _say(self, is_right: bool, note: str = "", is_last: bool = True) -> "Judgment":
        verdict = f"{'right' if is_right else 'wrong'}{f' ({note})' if note else ''}"
        if is_right or is_last:
            return Judgment(is_right, f"{verdict}: {self.box.symbol} = {self.value}")
        return Judgment(False, f"{verdict}. {self.hint(2 if note else 1)} A second try: Enter.")

    def _mark(self, text: str) -> tuple[Marking, MarkedBox]:
        """Returns the box as marked with this answer, all others being right."""
        answers = dict(fill_key(self.sheet).answers) | {self.box.key: text}
        marking = mark_sheet(replace(self.sheet, answers=answers))
        return marking, next(marked for marked in marking.boxes if marked.box.key == self.box.key)


class Covers:
    """The covered numbers of a lesson, and which of them the reader has uncovered."""

    def __init__(self, lesson: Lesson) -> None:
        self._covers: dict[tuple[str, str], Cover] = {}
        self._shown = list[Cover]()
        shown = {(number.run, number.address) for number in _find_numbers(lesson)}
        first = next(iter(lesson.program.traces))
        for head, sheet in zip(lesson.page.head.sheet, make_sheets(lesson, 0), strict=True):
            for box in sheet.boxes:
                if (place := (head.run or first, box.key)) in shown:
                    self._covers.setdefault(place, Cover(sheet, box))

    @property
    def all(self) -> list[Cover]:
        """The numbers that are still covered."""
        return [*self._covers.values()]

    def find(self, number: PageNumber) -> Cover | None:
        """Returns the cover of a number on the page; None where it is not covered."""
        return self._covers.get((number.run, number.address))

    def mask(self, text: str, keeps_width: bool = False) -> str:
        """Returns an arithmetic, or a line of a picture, with a □ for each number that is still covered."""
        row = _ROW.match(text)
        covers = self.all
        own = [cover for cover in covers if row and cover.box.symbol.partition("[")[0] == row[1]]
        start = row.end() if row else 0

        def write(found: re.Match[str]) -> str:
            if own:
                is_hidden = any(map(partial(_is_text_of, found[0]), own))
            else:
                is_hidden = significant_digits(found[0]) >= SIGNIFICANT and "." in found[0]
                is_hidden = is_hidden and any(map(partial(_is_text_of, found[0]), covers))
                is_hidden = is_hidden and not any(map(partial(_is_text_of, found[0]), self._shown))
            return ("□".rjust(len(found[0])) if keeps_width else "□") if is_hidden else found[0]

        return text[:start] + _NUMBER.sub(write, text[start:])

    def uncover(self, cover: Cover) -> None:
        """Shows a number from now on."""
        self._covers = {place: other for place, other in self._covers.items() if other is not cover}
        self._shown.append(cover)


def _find_numbers(lesson: Lesson) -> Iterator[PageNumber]:
    """Yields the numbers of a page; a number that it does not show could never be uncovered."""
    for section in lesson.page.sections:
        for reference in REFERENCE.findall(section.text):
            match lesson.references.resolve(reference):
                case PageNumber() as number:
                    yield number
                case PageNumbers(numbers):
                    yield from numbers
                case PageTable(rows):
                    yield from (number for row in rows for number in row)


def _is_text_of(text: str, cover: Cover) -> bool:
    """Tests whether a printed number may be a covered one, signs apart, at the decimals that both have."""
    value, printed = (abs(x) for x in (cover.sheet.key[cover.box.key], float(text.replace("−", "-"))))
    if "e" in text:
        return math.isclose(printed, value, rel_tol=10.0**-SIGNIFICANT)
    return is_equal(printed, value, min(len(text.partition(".")[2]), cover.box.decimals))
