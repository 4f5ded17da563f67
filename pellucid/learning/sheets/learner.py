"""The numbers as a learner has them, and the mistakes that give a wrong one.

The numbers reach through steps left open, and with the rounding of each answer as it was written.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pellucid.explanation.rule import Rule, compute, find_keys
from pellucid.learning.sheets.answers import (
    Answer,
    compared_decimals,
    is_equal,
    is_exactly,
    parse_answer,
    written_half_unit,
)
from pellucid.learning.sheets.sheet import Box, Sheet
from pellucid.verification import mistakes
from pellucid.verification.mistakes.slips import SIGN_LOST

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


# ---- mistakes that give a wrong answer: in its own box, or in a step before it that the learner left open

MOST_GENERIC = 2
"""The most generic mistakes (a lost term, a neighboring cell, a skipped step) that are named for one answer:
where more fit, they fit by chance."""
MOST_NEIGHBORS = 64
"""The most neighboring cells that a wrong answer is compared with; of more, some fit by chance."""
MOST_STEPS_BACK = 40
"""The most open boxes before a wrong answer in which its mistake is looked for; beyond them too many fit."""
NamedRule = tuple[str, Rule]


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
class MistakeSearch:
    """A wrong answer, and what its mistake is looked for with: what the rule gives on the learner's numbers
    (`yours`), how far their rounding moves that (`slack`), and the open boxes and answers that it reads."""

    learner: Learner
    box: Box
    answer: Answer
    yours: float
    slack: float
    opened: Sequence[Box]
    answers: Sequence[str]

    def find(self) -> tuple[FittingMistake, ...]:
        """Returns the mistakes that give the answer. The likeliest place is the box itself, then the last
        open step before it, by a mistake of the catalogue before one made from its rule; then the box itself
        within the rounding of the earlier answers. Generic mistakes come last, where nothing but a lost sign
        fits, and only if few do."""
        specific = next(filter(None, map(dict.fromkeys, self._list_searches())), {})
        if any(found.name != SIGN_LOST for found in specific):
            return tuple(specific)
        # a row that sums to 0 has neighbors of opposite sign: either may have been the slip
        generic = dict.fromkeys(self._find_generic())
        return (*specific, *generic) if len(generic) <= MOST_GENERIC else tuple(specific)

    def _list_searches(self) -> Iterator[Iterator[FittingMistake]]:
        """Yields the searches for specific mistakes, the likeliest place first; each searches only if it is
        iterated over."""
        here = [*self.box.mistakes.items(), *_list_slips(self.learner, self.box, False)]
        backwards = self.opened[: -MOST_STEPS_BACK - 1 : -1]
        yield self._find_here(here)
        for step in backwards:
            yield self._find_before(step, step.mistakes.items())
        for step in backwards:
            yield self._find_before(step, _list_slips(self.learner, step, False))
        yield self._find_nearly(here)

    def _find_generic(self) -> Iterator[FittingMistake]:
        yield from self._find_here(_list_slips(self.learner, self.box, True))
        read = self.learner.find_reads(self.box)
        for step in self.opened[-MOST_STEPS_BACK:]:
            if step.key in read:
                yield from self._find_before(step, _list_slips(self.learner, step, True))

    def _find_here(self, rules: Iterable[NamedRule]) -> Iterator[FittingMistake]:
        """Yields the mistakes that give the answer in the box itself."""
        for name, rule in rules:
            if self._fits(compute(rule, self.learner.values)):
                yield FittingMistake(name, rule=rule)

    def _find_before(self, step: Box, rules: Iterable[NamedRule]) -> Iterator[FittingMistake]:
        """Yields the mistakes that give the answer where they are made in an open step before it."""
        for name, rule in rules:
            wrong = compute(rule, self.learner.values)
            if self._fits(self.learner.recompute(self.box.rule, step.key, wrong)):
                yield FittingMistake(name, step.symbol)

    def _find_nearly(self, rules: Iterable[NamedRule]) -> Iterator[FittingMistake]:
        """Yields the mistakes that give the answer within the rounding of the earlier answers."""
        for name, rule in rules:
            sources = {**dict.fromkeys(self.answers), **dict.fromkeys(find_keys(rule))}
            value = compute(rule, self.learner.values)
            slack = self.learner.compute_slack(rule, sources)
            off = abs(self.answer.value - value) - written_half_unit(self.answer, self.box)
            if off <= slack and abs(value - self.yours) > self.slack + slack:
                yield FittingMistake(name, rule=rule)

    def _fits(self, value: float) -> bool:
        decimals = compared_decimals(self.answer, self.box)
        return is_equal(self.answer.value, value, decimals) and not abs(value - self.yours) <= self.slack


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
