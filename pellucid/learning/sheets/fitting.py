"""Mistakes that give a wrong answer: in its own box, or in a step before it that the learner left open."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pellucid.explanation.rule import Rule, compute, find_keys
from pellucid.learning.sheets.answers import Answer, compared_decimals, is_equal, written_half_unit
from pellucid.learning.sheets.learner import Learner
from pellucid.learning.sheets.sheet import Box, Sheet
from pellucid.verification import mistakes
from pellucid.verification.mistakes.slips import SIGN_LOST

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
