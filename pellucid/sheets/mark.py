"""Marking: each answer against the answer key, and against its rule on the learner's own earlier numbers.

`mark_sheet` needs the sheet alone. One slip makes one box wrong: what follows from it is right from your
numbers. A wrong answer is explained by the mistakes whose own arithmetic, on the learner's numbers, gives it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from pellucid.explain.rule import Rule, compute, find_keys
from pellucid.judge import mistakes
from pellucid.sheets.answers import MOST_DECIMALS, Answer, is_blank, parse_answer
from pellucid.sheets.sheet import Box, Sheet, SumCheck, format_answer

MOST_GENERIC = 2
"""The most generic mistakes (a lost term, a neighboring cell, a skipped step) that are named for one answer:
where more fit, they fit by chance."""
MOST_MOVES = 20_000
"""The most steps that are computed again to bound the rounding of one answer."""


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
    learner = _Learner(sheet)
    boxes = tuple(learner.mark(box) for box in sheet.boxes if not box.shown)
    return Marking(sheet, boxes, tuple(_find_failed_checks(sheet, learner)), learner.values)


class _Learner:
    """The numbers as the learner has them: printed, answered, or computed from those where a box is open."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.values = {key: given.value for key, given in sheet.given.items()}
        self.answers: dict[str, Answer] = {}
        self.half_units: dict[str, float] = {}
        """Of the answers as written; those of exact boxes are not here, or everything after them passes."""
        self.reads: dict[str, frozenset[str]] = {}
        self.order = {box.key: number for number, box in enumerate(sheet.boxes)}
        for box in sheet.boxes:
            answer = None if box.shown else parse_answer(sheet.answers.get(box.key, ""))
            if answer is not None:
                self.answers[box.key] = answer
                self.values[box.key] = answer.value
                if not box.exact and answer.decimals is not None:
                    self.half_units[box.key] = 0.5 * 10.0 ** -_precise_decimals(answer, box)
            elif box.shown and (printed := parse_answer(box.shown)):
                self.values[box.key] = printed.value
            else:
                self.values[box.key] = compute(box.rule, self.values)

    def mark(self, box: Box) -> MarkedBox:
        text, wanted = self.sheet.answers.get(box.key, ""), self.sheet.key[box.key]
        yours = compute(box.rule, self.values)
        if (answer := self.answers.get(box.key)) is None:
            return MarkedBox(box, text, Grade.OPEN if is_blank(text) else Grade.UNREADABLE, wanted, yours)
        grade, note = _judge(answer, box, wanted, yours)
        if grade is not Grade.WRONG:
            return MarkedBox(box, text, grade, wanted, yours, note)
        slack = self.compute_slack(box.rule)
        if _has_digits(answer, box) and abs(answer.value - yours) <= slack + _half_unit(answer, box):
            note = "within the rounding of your earlier answers"
            return MarkedBox(box, text, Grade.ROUNDING, wanted, yours, note)
        mistakes = self.find_mistakes(box, answer, yours, slack)
        return MarkedBox(box, text, grade, wanted, yours, "", mistakes)

    # ---- through steps left open

    def find_sources(self, rule: Rule) -> tuple[list[Box], list[str]]:
        """Returns the open boxes that a rule reads, directly or through others, and the answers that it reads
        so, both in the sheet's order."""
        seen: set[str] = set()
        waiting = list(find_keys(rule))
        while waiting:
            key = waiting.pop()
            if key in self.order and key not in seen:
                seen.add(key)
                if self.is_open(key):
                    waiting += self.find_reads(self.sheet.by_key[key])
        keys = sorted(seen, key=self.order.__getitem__)
        return [self.sheet.by_key[key] for key in keys if self.is_open(key)], [
            key for key in keys if key in self.answers
        ]

    def is_open(self, key: str) -> bool:
        box = self.sheet.by_key[key]
        return key not in self.answers and not box.shown

    def recompute(
        self, rule: Rule, opened: Iterable[Box], changed: Mapping[str, float], wrong: Mapping[str, Rule]
    ) -> float:
        """Returns what a rule gives where some numbers are changed, and some open boxes computed by wrong
        rules."""
        values, moved = {**self.values, **changed}, set(changed)
        for box in opened:
            if box.key in wrong or not moved.isdisjoint(self.find_reads(box)):
                values[box.key] = compute(wrong.get(box.key, box.rule), values)
                moved.add(box.key)
        return compute(rule, values)

    def find_reads(self, box: Box) -> frozenset[str]:
        """Returns the keys that a box reads."""
        if box.key not in self.reads:
            self.reads[box.key] = frozenset(find_keys(box.rule))
        return self.reads[box.key]

    def compute_slack(self, rule: Rule) -> float:
        """Returns how far a result may be off because the earlier answers are rounded: the sum of its changes
        when each moves by half a unit of its last written place."""
        opened, answers = self.find_sources(rule)
        moved = [key for key in answers if key in self.half_units]
        right = compute(rule, self.values)
        changes = []
        for key in moved[: MOST_MOVES // (len(opened) + 1)]:
            value, half = self.values[key], self.half_units[key]
            both = [
                abs(self.recompute(rule, opened, {key: value + step}, {}) - right) for step in (half, -half)
            ]
            changes.append(max(both))
        return math.fsum(change for change in changes if math.isfinite(change))

    # ---- mistakes

    def find_mistakes(
        self, box: Box, answer: Answer, yours: float, slack: float
    ) -> tuple[FittingMistake, ...]:
        """Returns the mistakes that give the answer: in the box itself, or in an open step before it. Generic
        ones only where no other fits, even within the rounding of the earlier answers."""
        opened, _ = self.find_sources(box.rule)

        def fits(value: float) -> bool:
            decimals = _compared_decimals(answer, box)
            return _is_equal(answer.value, value, decimals) and not abs(value - yours) <= slack

        def fits_nearly(rule: Rule) -> bool:
            value = compute(rule, self.values)
            off = abs(answer.value - value) - _half_unit(answer, box)
            return abs(value - yours) > slack and off <= self.compute_slack(rule)

        def find(is_generic: bool) -> Iterator[FittingMistake]:
            for name, rule in self._list_mistakes(box, is_generic):
                if fits(compute(rule, self.values)):
                    yield FittingMistake(name)
            for step in reversed(opened):
                for name, rule in self._list_mistakes(step, is_generic):
                    if fits(self.recompute(box.rule, opened, {}, {step.key: rule})):
                        yield FittingMistake(name, step.symbol)

        nearly = (FittingMistake(name) for name, rule in self._list_mistakes(box, False) if fits_nearly(rule))
        if specific := dict.fromkeys(find(is_generic=False)) or dict.fromkeys(nearly):
            return tuple(specific)
        generic = dict.fromkeys(find(is_generic=True))
        return tuple(generic) if len(generic) <= MOST_GENERIC else ()

    def _list_mistakes(self, box: Box, is_generic: bool) -> Iterator[tuple[str, Rule]]:
        if not is_generic:
            yield from box.mistakes.items()
        yield from find_slips(self.sheet, box, is_generic)


def find_slips(sheet: Sheet, box: Box, is_generic: bool) -> Iterator[tuple[str, Rule]]:
    """Yields the mistakes that are made from a box's own rule, by name; with the rules of the cells whose
    indices differ from its own in one axis."""
    neighbors = [other.rule for other in sheet.boxes if mistakes.are_neighbors(box.key, other.key)]
    for slip in mistakes.find_slips(box.rule, neighbors):
        if slip.is_specific != is_generic:
            yield slip.name, slip.rule


# ---- one answer


def _judge(answer: Answer, box: Box, wanted: float, yours: float) -> tuple[Grade, str]:
    """Returns the verdict on an answer where rounding of the earlier answers is not yet considered."""
    written = _written_decimals(answer)
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


def _written_decimals(answer: Answer) -> int:
    return MOST_DECIMALS if answer.decimals is None else answer.decimals


def _compared_decimals(answer: Answer, box: Box) -> int:
    """Returns the decimals in which an answer can agree with a number: those asked, or fewer if fewer were
    written; all that were written where the number is exact."""
    written = _written_decimals(answer)
    return max(written, box.decimals) if box.exact else min(written, box.decimals)


def _half_unit(answer: Answer, box: Box) -> float:
    return 0.5 * 10.0 ** -_compared_decimals(answer, box)


def _precise_decimals(answer: Answer, box: Box) -> int:
    """Returns the decimals that an answer is precise to; a whole number, such as 2 for 2.000, to those
    asked."""
    written = _written_decimals(answer)
    return max(written, box.decimals) if answer.value.is_integer() else written


def _has_digits(answer: Answer, box: Box) -> bool:
    """Tests whether an answer has a significant digit, or all that are asked."""
    return answer.value != 0 or _written_decimals(answer) >= box.decimals


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


# ---- sums that are known


def _find_failed_checks(sheet: Sheet, learner: _Learner) -> Iterator[FailedCheck]:
    """Yields the sums that the answers miss, where the key, rounded, does not miss them as well."""
    for check in sheet.checks:
        answers = [learner.answers[key] for key in check.keys if key in learner.answers]
        if not answers or any(learner.is_open(key) for key in check.keys if key in learner.order):
            continue
        decimals = max(_written_decimals(answer) for answer in answers)
        total = math.fsum(learner.values[key] for key in check.keys)
        if _is_equal(total, check.sum, decimals) or not math.isfinite(total):
            continue
        boxes = [sheet.by_key[key] for key in check.keys if key in sheet.by_key]
        rounded = math.fsum(
            round(sheet.key[key], sheet.by_key[key].decimals) if key in sheet.by_key else sheet.key[key]
            for key in check.keys
        )
        if not _is_equal(total, rounded, max(decimals, *(box.decimals for box in boxes))):
            yield FailedCheck(check, format_answer(total, min(decimals, 6)))


def _as_json(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
