"""Marking: each answer against the answer key, and against its rule on the learner's own earlier numbers.

`mark_sheet` needs the sheet alone. One slip makes one box wrong: what follows from it is right from your
numbers. A wrong answer is explained by the mistakes whose own arithmetic, on the learner's numbers, gives it;
`make_hint` says as much of it as a learner asks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from pellucid.explanation.rule import RuleCall, compute, find_keys, format_rule
from pellucid.learning.sheets.answers import (
    Answer,
    has_digits,
    is_blank,
    is_cut_off,
    is_equal,
    is_exactly,
    is_plain,
    written_half_unit,
)
from pellucid.learning.sheets.learner import FittingMistake, Learner, MistakeSearch
from pellucid.learning.sheets.sheet import Box, Sheet, SumCheck, format_answer
from pellucid.verification.mistakes import explain_mistake


class Grade(StrEnum):
    """The verdict on one answer; the text is what people and JSON read."""

    RIGHT = "right"
    FROM_YOURS = "right from your numbers"
    """It follows from the learner's own earlier answers, of which one differs from the key."""
    ROUNDING = "rounding"
    """Right, but with too few decimals, cut off, or off by what rounding the earlier answers explains."""
    WRONG = "wrong"
    OPEN = "open"
    UNREADABLE = "not a number"

    @property
    def is_right(self) -> bool:
        return self in (Grade.RIGHT, Grade.FROM_YOURS, Grade.ROUNDING)


@dataclass(frozen=True)
class MarkedBox:
    """One box with its verdict: the answer key's number, and the rule's on the learner's own numbers."""

    box: Box
    text: str
    grade: Grade
    wanted: float
    yours: float
    note: str = ""
    mistakes: tuple[FittingMistake, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Returns the box as JSON data; a number that JSON does not have is its text."""
        data = {
            "key": self.box.key,
            "symbol": self.box.symbol,
            "answer": self.text,
            "verdict": str(self.grade),
            "wanted": _as_json(self.wanted),
            "yours": _as_json(self.yours),
            "note": self.note,
            "mistakes": [{"name": found.name, "place": found.place} for found in self.mistakes],
        }
        return {key: value for key, value in data.items() if value not in ("", [])}


@dataclass(frozen=True)
class FailedCheck:
    """Answers whose sum is known and is another one."""

    check: SumCheck
    text: str
    """The sum of the answers, with as many decimals as they have."""


@dataclass(frozen=True)
class Marking:
    """A sheet with a verdict for every box that it asks, and the learner's numbers by key."""

    sheet: Sheet
    boxes: tuple[MarkedBox, ...]
    failed: tuple[FailedCheck, ...]
    values: Mapping[str, float]

    @cached_property
    def counts(self) -> dict[Grade, int]:
        """The number of boxes with each verdict."""
        grades = [marked.grade for marked in self.boxes]
        return {grade: grades.count(grade) for grade in Grade}

    def find(self, key: str) -> MarkedBox:
        """Returns the box of this key."""
        return next(marked for marked in self.boxes if marked.box.key == key)

    def is_answered(self, key: str) -> bool:
        """Tests whether a box has an answer that is a number."""
        return any(m.box.key == key and m.grade not in (Grade.OPEN, Grade.UNREADABLE) for m in self.boxes)

    @property
    def first_wrong(self) -> MarkedBox | None:
        return next((marked for marked in self.boxes if marked.grade is Grade.WRONG), None)

    def to_data(self) -> dict[str, Any]:
        """Returns the marking as JSON data."""
        return {
            "title": self.sheet.title,
            "totals": {str(grade): count for grade, count in self.counts.items()},
            "boxes": [marked.to_data() for marked in self.boxes],
            "failed_checks": [
                {"keys": list(failed.check.keys), "sum": failed.text, "wanted": failed.check.sum}
                for failed in self.failed
            ],
        }


def mark_sheet(sheet: Sheet) -> Marking:
    """Returns the verdict on every answer of a sheet. A box that the sheet prints is not asked."""
    learner = Learner(sheet)
    boxes = tuple(_mark_box(learner, box) for box in sheet.boxes if not box.shown)
    return Marking(sheet, boxes, tuple(_find_failed_checks(learner, boxes)), learner.values)


def _mark_box(learner: Learner, box: Box) -> MarkedBox:
    text, wanted = learner.sheet.answers.get(box.key, ""), learner.sheet.key[box.key]
    yours = compute(box.rule, learner.values)
    if (answer := learner.answers.get(box.key)) is None:
        return MarkedBox(box, text, Grade.OPEN if is_blank(text) else Grade.UNREADABLE, wanted, yours)
    grade, note = _judge(answer, box, wanted, yours)
    if grade is not Grade.WRONG:
        return MarkedBox(box, text, grade, wanted, yours, note)
    opened, answers = learner.find_sources(box.rule)
    slack = learner.compute_slack(box.rule, answers)
    if has_digits(answer, box) and abs(answer.value - yours) <= slack + written_half_unit(answer, box):
        note = "within the rounding of your earlier answers"
        return MarkedBox(box, text, Grade.ROUNDING, wanted, yours, note)
    found = MistakeSearch(learner, box, answer, yours, slack, opened, answers).find()
    note = "" if found else _compare_decimal_points(answer, box, yours)
    return MarkedBox(box, text, grade, wanted, yours, note, found)


# ---- one answer


def _judge(answer: Answer, box: Box, wanted: float, yours: float) -> tuple[Grade, str]:
    """Returns the verdict on an answer where rounding of the earlier answers is not yet considered."""
    written = answer.written_decimals
    asked = max(box.decimals, written) if box.exact else box.decimals
    if is_equal(answer.value, wanted, asked) or is_exactly(answer, wanted):
        return Grade.RIGHT, ""
    give = f"give {box.decimals} decimals" if written < box.decimals else ""
    if give and answer.value:
        if is_equal(answer.value, wanted, written):
            return Grade.ROUNDING, give
        if is_equal(answer.value, yours, written):
            if is_cut_off(answer, box, wanted):
                return Grade.ROUNDING, give
            return Grade.FROM_YOURS, "" if is_exactly(answer, yours) else give
    if is_equal(answer.value, yours, asked):
        return Grade.FROM_YOURS, ""
    for value in (yours, wanted):
        if is_cut_off(answer, box, value):
            one_more, rounded = (format_answer(value, decimals) for decimals in (written + 1, written))
            note = f"cut off: {one_more} rounds to {rounded}"
            return Grade.ROUNDING, f"{note}; {give}" if give else note
    return Grade.WRONG, ""


def _compare_decimal_points(answer: Answer, box: Box, yours: float) -> str:
    """Returns what to check where an answer has the right digits, with its decimal point elsewhere."""
    if not math.isfinite(yours) or not float(box.format(yours)):
        return ""
    for power in (1, 2, 3):
        for factor, size in ((10.0**power, "large"), (10.0**-power, "small")):
            if any(
                is_equal(answer.value, value * factor, box.decimals + power)
                for value in (yours, float(box.format(yours)))
            ):
                return f"{10**power} times too {size}: check the decimal point"
    return ""


# ---- sums that are known

ROUNDED_WELL = {Grade.RIGHT, Grade.FROM_YOURS}
MOST_CHECKED_DECIMALS = 8


def _find_failed_checks(learner: Learner, boxes: Iterable[MarkedBox]) -> Iterator[FailedCheck]:
    """Yields the sums that the answers miss; not where each answer is rounded well, and rounding explains
    it: three times 0.333 is 0.999."""
    grades = {marked.box.key: marked.grade for marked in boxes}
    by_key = learner.sheet.by_key
    for check in learner.sheet.checks:
        answers = [learner.answers[key] for key in check.keys if key in learner.answers]
        if not answers or any(grades.get(key) in (Grade.OPEN, Grade.UNREADABLE) for key in check.keys):
            continue
        decimals = min(max(answer.written_decimals for answer in answers), MOST_CHECKED_DECIMALS)
        total = compute(RuleCall("+", check.keys), learner.values)
        rounding = math.fsum(by_key[key].half_unit for key in check.keys if key in by_key)
        is_rounded_well = {grades.get(key, Grade.RIGHT) for key in check.keys} <= ROUNDED_WELL
        if is_equal(total, check.sum, decimals) or not math.isfinite(total):
            continue
        if not is_rounded_well or abs(total - check.sum) > rounding * (1 + 1e-6):
            yield FailedCheck(check, format_answer(total, decimals))


def _as_json(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


# ---- hints for one box: where to look, the formula, the arithmetic in numbers, the value

STAGES = (1, 2, 3, 4)
LONGEST_ARITHMETIC = 90
"""The most letters of the arithmetic of a mistake that are printed."""


def make_hint(marking: Marking, marked: MarkedBox, stage: int) -> str:
    """Returns the hint of this stage, 1 to 4, for a box; each says more than the one before."""
    return (_say_where, _say_mistake, _say_arithmetic, _say_value)[stage - 1](marking, marked)


def _say_where(marking: Marking, marked: MarkedBox) -> str:
    box = marked.box
    place = f"{box.symbol}: {box.meaning}" if box.meaning else box.symbol
    keys = dict.fromkeys(find_keys(box.rule))
    read = ", ".join(marking.sheet.symbol(key) for key in keys)
    doubt = "Compute it again" if marked.grade is Grade.WRONG else "It is computed"
    return f"{place}. {doubt} from {read}." if read else f"{place}."


def _say_mistake(marking: Marking, marked: MarkedBox) -> str:
    note = marked.note if marked.grade is Grade.WRONG else ""
    said = explain_fitting(marking, marked) or (f"Your number is {note}." if note else "")
    return "\n".join(filter(None, (said, f"The formula: {marked.box.formula}")))


def _say_arithmetic(marking: Marking, marked: MarkedBox) -> str:
    rule = format_rule(marked.box.rule, lambda key: write_number(marking, key))
    return f"With your numbers: {marked.box.symbol} = {rule}"


def _say_value(marking: Marking, marked: MarkedBox) -> str:
    box = marked.box
    yours, wanted = (format_answer(value, box.decimals) for value in (marked.yours, marked.wanted))
    said = f"{box.symbol} = {yours}"
    return said if yours == wanted else f"{said} from your numbers; {wanted} where all before it is right"


def explain_fitting(marking: Marking, marked: MarkedBox) -> str:
    """Returns the mistakes that give a wrong answer, each with its sentence and, where it is short, the
    arithmetic that gives the answer; empty where none does."""
    lines = []
    for found in marked.mistakes:
        sentences = [f"{found}.", explain_mistake(found.name), _say_wrong_arithmetic(marking, found)]
        lines.append(" ".join(filter(None, sentences)))
    return "\n".join(lines)


def _say_wrong_arithmetic(marking: Marking, found: FittingMistake) -> str:
    text = "" if found.rule is None else format_rule(found.rule, marking.sheet.symbol)
    return f"Your number is {text}." if 0 < len(text) <= LONGEST_ARITHMETIC else ""


def write_number(marking: Marking, key: str) -> str:
    """Returns a number as the learner has it: printed, as answered, or computed where the box is open."""
    sheet = marking.sheet
    if key in sheet.given:
        return sheet.given[key].text
    box = sheet.by_key[key]
    if box.shown:
        return box.shown
    answer = sheet.answers.get(key, "").strip()
    if marking.is_answered(key):
        return answer if is_plain(answer) else f"({answer})"
    return format_answer(marking.values[key], box.decimals)
