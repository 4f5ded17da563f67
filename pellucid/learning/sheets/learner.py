"""The numbers as a learner has them, and how far they reach: through steps left open, and with the rounding
of each answer as it was written."""

import heapq
import math
from collections.abc import Iterable
from functools import cached_property

from pellucid.explanation.rule import Rule, compute, find_keys
from pellucid.learning.sheets.answers import Answer, is_exactly, parse_answer
from pellucid.learning.sheets.sheet import Box, Sheet

MOST_MOVES = 1_000_000
"""The most numbers that are read again to recompute the open boxes of one sheet; a sheet for a person needs a
tenth of it."""
MOST_SOURCES = 200
"""The most earlier answers, the nearest ones, whose rounding is carried into one result."""


class Learner:
    """The numbers as the learner has them: printed, answered, or computed from those where a box is open."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.values = {key: given.value for key, given in sheet.given.items()}
        self.answers: dict[str, Answer] = {}
        self.half_units: dict[str, float] = {}
        """Of the answers as written; those of exact boxes are not here, or everything after them passes."""
        self.reads: dict[str, frozenset[str]] = {}
        self.slips: dict[tuple[str, bool], list[tuple[str, Rule]]] = {}
        self.moves = 0
        self.propagated: dict[tuple[str, float], dict[str, float]] = {}
        self.order = {box.key: number for number, box in enumerate(sheet.boxes)}
        for box in sheet.boxes:
            answer = None if box.shown else parse_answer(sheet.answers.get(box.key, ""))
            if answer is not None:
                self.answers[box.key] = answer
                self.values[box.key] = answer.value
                is_exact = box.exact or answer.decimals is None or is_exactly(answer, sheet.key[box.key])
                if not is_exact and answer.decimals is not None:
                    self.half_units[box.key] = 0.5 * 10.0 ** -_precise_decimals(answer, box)
            elif box.shown and (printed := parse_answer(box.shown)):
                self.values[box.key] = printed.value
            else:
                self.values[box.key] = compute(box.rule, self.values)

    def find_sources(self, rule: Rule) -> tuple[list[Box], list[str]]:
        """Returns the open boxes that a rule reads, directly or through others, and the nearest answers that
        it reads so, both in the sheet's order."""
        seen: set[str] = set()
        waiting = list(find_keys(rule))
        while waiting:
            key = waiting.pop()
            if key in self.order and key not in seen:
                seen.add(key)
                if self.is_open(key):
                    waiting += self.find_reads(self.sheet.by_key[key])
        keys = sorted(seen, key=self.order.__getitem__)
        answers = [key for key in keys if key in self.answers]
        return [self.sheet.by_key[key] for key in keys if self.is_open(key)], answers[-MOST_SOURCES:]

    def is_open(self, key: str) -> bool:
        box = self.sheet.by_key[key]
        return key not in self.answers and not box.shown

    def recompute(self, rule: Rule, key: str, value: float) -> float:
        """Returns what a rule gives where one number is another, and so are the open boxes after it."""
        changed = self.propagate(key, value)
        before = {key: self.values[key] for key in changed}
        self.values |= changed
        result = compute(rule, self.values)
        self.values |= before
        return result

    def propagate(self, key: str, value: float) -> dict[str, float]:
        """Returns the numbers that change where one number is another: it, and open boxes that read it,
        directly or through others."""
        if (key, value) not in self.propagated:
            # in place and back again: a copy of all numbers costs more than a few rules
            before, self.values[key] = {key: self.values[key]}, value
            waiting = list(self.readers.get(key, ())) if self.moves < MOST_MOVES else []
            heapq.heapify(waiting)
            while waiting:
                box = self.sheet.boxes[heapq.heappop(waiting)]
                if box.key not in before:
                    before[box.key] = self.values[box.key]
                    self.moves += len(self.find_reads(box))
                    self.values[box.key] = compute(box.rule, self.values)
                    for reader in self.readers.get(box.key, ()):
                        heapq.heappush(waiting, reader)
            self.propagated[key, value] = {key: self.values[key] for key in before}
            self.values |= before
        return self.propagated[key, value]

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The places of the open boxes that read each key."""
        found: dict[str, list[int]] = {}
        for number, box in enumerate(self.sheet.boxes):
            if self.is_open(box.key):
                for key in self.find_reads(box):
                    found.setdefault(key, []).append(number)
        return found

    def find_reads(self, box: Box) -> frozenset[str]:
        """Returns the keys that a box reads."""
        if box.key not in self.reads:
            self.reads[box.key] = frozenset(find_keys(box.rule))
        return self.reads[box.key]

    def compute_slack(self, rule: Rule, answers: Iterable[str]) -> float:
        """Returns how far a result may be off because these answers are rounded: the sum of its changes when
        each moves by half a unit of its last written place."""
        right = compute(rule, self.values)
        slack = 0.0
        for key in filter(self.half_units.__contains__, answers):
            value, half = self.values[key], self.half_units[key]
            change = max(abs(self.recompute(rule, key, value + step) - right) for step in (half, -half))
            slack += change if math.isfinite(change) else 0.0
        return slack


def _precise_decimals(answer: Answer, box: Box) -> int:
    """Returns the decimals that an answer is precise to; a whole number, such as 2 for 2.000, to those
    asked."""
    written = answer.written_decimals
    return max(written, box.decimals) if answer.value.is_integer() else written
