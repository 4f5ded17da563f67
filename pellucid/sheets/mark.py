"""Marking: each answer against the answer key, and against its rule on the learner's own earlier numbers.

`mark_sheet` needs the sheet alone. One slip makes one box wrong: what follows from it is right from your
numbers. A wrong answer is explained by the mistakes whose own arithmetic, on the learner's numbers, gives it.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from pellucid.explain.rule import Rule, RuleCall, compute, find_keys
from pellucid.judge import mistakes
from pellucid.judge.mistakes.slips import SIGN_LOST
from pellucid.sheets.answers import Answer, is_blank
from pellucid.sheets.learner import Learner
from pellucid.sheets.sheet import Box, Sheet, SumCheck, format_answer

MOST_GENERIC = 2
"""The most generic mistakes (a lost term, a neighboring cell, a skipped step) that are named for one answer:
where more fit, they fit by chance."""
MOST_NEIGHBORS = 64
"""The most neighboring cells that a wrong answer is compared with; of more, some fit by chance."""
MOST_STEPS_BACK = 40
"""The most open boxes before a wrong answer in which its mistake is looked for; beyond them too many fit."""
NamedRule = tuple[str, Rule]


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
class FittingMistake:
    """A mistake that gives the answer; `place` is the symbol of the step in which it was made, where that is
    one that the learner left open."""

    name: str
    place: str = ""
    rule: Rule | None = field(default=None, compare=False)
    """The arithmetic that gives the answer, where it is that of the box itself."""

    def __str__(self) -> str:
        return f"{self.name}, in {self.place}" if self.place else self.name


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

    def as_data(self) -> dict[str, Any]:
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
        """How many boxes got each verdict."""
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

    def as_data(self) -> dict[str, Any]:
        """Returns the marking as JSON data."""
        return {
            "title": self.sheet.title,
            "totals": {str(grade): count for grade, count in self.counts.items()},
            "boxes": [marked.as_data() for marked in self.boxes],
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
    if _has_digits(answer, box) and abs(answer.value - yours) <= slack + _half_unit(answer, box):
        note = "within the rounding of your earlier answers"
        return MarkedBox(box, text, Grade.ROUNDING, wanted, yours, note)
    found = tuple(_find_mistakes(learner, box, answer, yours, slack, opened, answers))
    note = "" if found else _compare_decimal_points(answer, box, yours)
    return MarkedBox(box, text, grade, wanted, yours, note, found)


# ---- mistakes


def _find_mistakes(
    learner: Learner,
    box: Box,
    answer: Answer,
    yours: float,
    slack: float,
    opened: Sequence[Box],
    answers: Sequence[str],
) -> Sequence[FittingMistake]:
    """Returns the mistakes that give the answer. The likeliest place is the box itself, then the last open
    step before it, by a mistake of the catalogue before one made from its rule; then the box itself within
    the rounding of the earlier answers. Generic mistakes come last, where nothing but a lost sign fits, and
    only if few do."""
    read = learner.find_reads(box)

    def fits(value: float) -> bool:
        decimals = _compared_decimals(answer, box)
        return _is_equal(answer.value, value, decimals) and not abs(value - yours) <= slack

    def find_here(rules: Iterable[NamedRule]) -> list[FittingMistake]:
        return [
            FittingMistake(name, rule=rule) for name, rule in rules if fits(compute(rule, learner.values))
        ]

    def find_before(step: Box, rules: Iterable[NamedRule]) -> list[FittingMistake]:
        return [
            FittingMistake(name, step.symbol)
            for name, rule in rules
            if fits(learner.recompute(box.rule, step.key, compute(rule, learner.values)))
        ]

    def find_nearly(rules: Iterable[NamedRule]) -> Iterator[FittingMistake]:
        for name, rule in rules:
            sources = {**dict.fromkeys(answers), **dict.fromkeys(find_keys(rule))}
            value, its_slack = compute(rule, learner.values), learner.compute_slack(rule, sources)
            off = abs(answer.value - value) - _half_unit(answer, box)
            if off <= its_slack and abs(value - yours) > slack + its_slack:
                yield FittingMistake(name, rule=rule)

    def list_specific(step: Box) -> list[NamedRule]:
        return [*step.mistakes.items(), *_list_slips(learner, step, False)]

    def list_generic() -> Iterator[FittingMistake]:
        yield from find_here(_list_slips(learner, box, True))
        for step in opened[-MOST_STEPS_BACK:]:
            if step.key in read:
                yield from find_before(step, _list_slips(learner, step, True))

    backwards = opened[: -MOST_STEPS_BACK - 1 : -1]
    searches: Iterator[Iterable[FittingMistake]] = itertools.chain(
        (find_here(list_specific(box)) for _ in range(1)),
        (find_before(step, step.mistakes.items()) for step in backwards),
        (find_before(step, _list_slips(learner, step, False)) for step in backwards),
        (find_nearly(list_specific(box)) for _ in range(1)),
    )
    specific = next(filter(None, map(dict.fromkeys, searches)), {})
    if any(found.name != SIGN_LOST for found in specific):
        return tuple(specific)
    # a row that sums to 0 has neighbors of opposite sign: either may have been the slip
    generic = dict.fromkeys(list_generic())
    return (*specific, *generic) if len(generic) <= MOST_GENERIC else tuple(specific)


def _list_slips(learner: Learner, box: Box, is_generic: bool) -> list[NamedRule]:
    """Returns the slips of a box, found once for all answers that may come from them."""
    place = (box.key, is_generic)
    if place not in learner.slips:
        learner.slips[place] = list(find_slips(learner.sheet, box, is_generic))
    return learner.slips[place]


def find_slips(sheet: Sheet, box: Box, is_generic: bool) -> Iterator[NamedRule]:
    """Yields the mistakes that are made from a box's own rule, by name; with the rules of the cells whose
    indices differ from its own in one axis."""
    cells = sheet.by_step[box.step] if is_generic else ()
    neighbors = [other.rule for other in cells if mistakes.are_neighbors(box.key, other.key)]
    for slip in mistakes.find_slips(box.rule, neighbors[:MOST_NEIGHBORS]):
        if slip.is_specific != is_generic:
            yield slip.name, slip.rule


# ---- one answer


def _judge(answer: Answer, box: Box, wanted: float, yours: float) -> tuple[Grade, str]:
    """Returns the verdict on an answer where rounding of the earlier answers is not yet considered."""
    written = answer.written_decimals
    asked = max(box.decimals, written) if box.exact else box.decimals
    if _is_equal(answer.value, wanted, asked):
        return Grade.RIGHT, ""
    give = f"give {box.decimals} decimals" if written < box.decimals else ""
    if give and answer.value:
        if _is_equal(answer.value, wanted, written):
            return Grade.ROUNDING, give
        if _is_equal(answer.value, yours, written):
            return (Grade.ROUNDING if _is_cut_off(answer, box, wanted) else Grade.FROM_YOURS), give
    if _is_equal(answer.value, yours, asked):
        return Grade.FROM_YOURS, ""
    for value in (yours, wanted):
        if _is_cut_off(answer, box, value):
            one_more, rounded = (format_answer(value, decimals) for decimals in (written + 1, written))
            note = f"cut off: {one_more} rounds to {rounded}"
            return Grade.ROUNDING, f"{note}; {give}" if give else note
    return Grade.WRONG, ""


def _compared_decimals(answer: Answer, box: Box) -> int:
    """Returns the decimals in which an answer can agree with a number: those asked, or fewer if fewer were
    written with a digit in them; all that were written where the number is exact."""
    if box.exact or not _has_digits(answer, box):
        return max(answer.written_decimals, box.decimals)
    return min(answer.written_decimals, box.decimals)


def _half_unit(answer: Answer, box: Box) -> float:
    return 0.5 * 10.0 ** -_compared_decimals(answer, box)


def _has_digits(answer: Answer, box: Box) -> bool:
    """Tests whether an answer has a significant digit, or all that are asked."""
    return answer.value != 0 or answer.written_decimals >= box.decimals


def _is_equal(answer: float, value: float, decimals: int) -> bool:
    """Tests whether an answer is a number at this many decimals; at a tie both roundings are right."""
    if not (math.isfinite(answer) and math.isfinite(value)):
        return answer == value
    within = 0.5 * 10.0**-decimals * (1 + 1e-6) + 1e-14 * abs(value)
    return abs(answer - value) <= within or abs(round(answer, decimals) - value) <= within


def _is_cut_off(answer: Answer, box: Box, value: float) -> bool:
    """Tests whether an answer is a number without the digits that follow those written."""
    if answer.decimals is None or not math.isfinite(value) or not _has_digits(answer, box):
        return False
    unit = 10.0**-answer.decimals
    beyond = abs(value) - abs(answer.value)
    return answer.value * value >= 0 and -1e-9 * unit <= beyond < unit


def _compare_decimal_points(answer: Answer, box: Box, yours: float) -> str:
    """Returns what to check where an answer has the right digits, with its decimal point elsewhere."""
    if not math.isfinite(yours) or not float(box.format(yours)):
        return ""
    for power in (1, 2, 3):
        for factor, size in ((10.0**power, "large"), (10.0**-power, "small")):
            if any(
                _is_equal(answer.value, value * factor, box.decimals + power)
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
        if _is_equal(total, check.sum, decimals) or not math.isfinite(total):
            continue
        if not is_rounded_well or abs(total - check.sum) > rounding * (1 + 1e-6):
            yield FailedCheck(check, format_answer(total, decimals))


def _as_json(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
