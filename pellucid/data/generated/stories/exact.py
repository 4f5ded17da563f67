"""Exact figures of a grammar, without sampling it: entropy, mean and greatest length, how many stories.

All four are one recursion over the places of the program. What comes after a place depends on the past
only through the forms that are still copied or asked for; everything else is forgotten, which makes the
number of distinct pasts small enough to visit them all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from pellucid.data.generated.stories.generate import build_story
from pellucid.data.generated.stories.grammar import Grammar, Option, StoryTemplate
from pellucid.data.generated.stories.levels import grammar
from pellucid.data.generated.stories.lexicon import words_of

Measure = Callable[[str], int]


class Position(NamedTuple):
    """The next step of a template, and where the story goes on after it."""

    template: StoryTemplate
    step: int
    rest: "Position | None"


def n_bytes(text: str) -> int:
    return len(text.encode())


def n_words(text: str) -> int:
    return len(words_of(text))


class Lookahead:
    """What the rest of a story may still look at."""

    def __init__(self) -> None:
        self._ahead: dict[Position, frozenset[str]] = {}

    def ahead(self, place: Position | None) -> frozenset[str]:
        """The forms that any continuation may still copy, and, after "=", those that it may ask for."""
        if place is None:
            return frozenset()
        if place not in self._ahead:
            template, step, rest = place
            used = self.ahead(rest)
            if step == len(template.steps):
                used |= set(cut_piece(template.tail)[1])
            else:
                before, key, tables = template.steps[step]
                used |= {*cut_piece(before)[1], f"={key}"} | self.ahead(Position(template, step + 1, None))
                for table in tables.values():
                    for option in table.options:
                        used |= self.ahead(Position(option.template, 0, None))
            self._ahead[place] = used
        return self._ahead[place]


class _Walk(Lookahead, ABC):
    """A recursion over (place, what is remembered of the past)."""

    def __init__(self, program: Grammar, measure: Measure | None) -> None:
        super().__init__()
        self.program, self.measure = program, measure
        self.memo: dict[tuple[Position, frozenset[tuple[str, Any]]], Any] = {}
        self._forms: dict[Option, dict[str, Any]] = {}

    def length(self, piece: str, forms: dict[str, Any]) -> int:
        """A literal and its copies; a remembered form is its length already."""
        if self.measure is None:
            return 0
        literals, copies = cut_piece(piece)
        return sum(map(self.measure, literals)) + sum(int(forms[copy]) for copy in copies)

    def forms(self, option: Option) -> dict[str, Any]:
        """Returns the trace that an option leaves: keys as they are, copies by their length."""
        if option not in self._forms:
            keys, measure = self.program.keys, self.measure
            kept: dict[str, Any] = {f"={k}": v for k, v in option.forms.items() if k in keys}
            if measure is not None:
                kept |= {k: measure(v) for k, v in option.forms.items() if k in self.program.copied}
            self._forms[option] = kept
        return self._forms[option]

    def value(self, place: Position | None, forms: dict[str, Any]) -> Any:
        if place is None:
            return self.end()
        ahead = self.ahead(place)
        live = {form: value for form, value in forms.items() if form in ahead}
        memory = (place, frozenset(live.items()))
        if memory not in self.memo:
            template, step, rest = place
            if step == len(template.steps):
                self.memo[memory] = self.add(self.length(template.tail, live), self.value(rest, live))
            else:
                before, key, tables = template.steps[step]
                after = Position(template, step + 1, rest)
                options = self.worth_visiting(tables[live[f"={key}"]].options, self.ahead(after))
                followed = [
                    (
                        option,
                        self.value(Position(option.template, 0, after), live | self.forms(option)),
                    )
                    for option in options
                ]
                self.memo[memory] = self.add(self.length(before, live), self.meet(followed))
        return self.memo[memory]

    def total(self) -> Any:
        return self.value(Position(self.program.start, 0, None), {"=": ""})

    def worth_visiting(self, options: tuple[Option, ...], ahead: frozenset[str]) -> tuple[Option, ...]:
        return options

    def end(self) -> Any:
        return 0.0

    def add(self, length: int, value: Any) -> Any:
        return length + value

    @abstractmethod
    def meet(self, followed: list[tuple[Option, Any]]) -> Any:
        """The value of a choice, from what each of its options leads to."""


class _Entropy(_Walk):
    def meet(self, followed: list[tuple[Option, Any]]) -> Any:
        return sum(option.probability * (value - option.ln) for option, value in followed)


class _Mean(_Walk):
    def meet(self, followed: list[tuple[Option, Any]]) -> Any:
        return sum(option.probability * value for option, value in followed)


class _Count(_Walk):
    def end(self) -> Any:
        return 1

    def meet(self, followed: list[tuple[Option, Any]]) -> Any:
        return sum(value for _, value in followed)


class _Longest(_Walk):
    """Values are (length, options that reach it)."""

    def end(self) -> Any:
        return 0, ()

    def add(self, length: int, value: Any) -> Any:
        return length + value[0], value[1]

    def meet(self, followed: list[tuple[Option, Any]]) -> Any:
        option, (length, made) = max(followed, key=lambda pair: pair[1][0])
        return length, (option, *made)

    def worth_visiting(self, options: tuple[Option, ...], ahead: frozenset[str]) -> tuple[Option, ...]:
        """Omits a word where another one, equal in every key, is nowhere shorter."""
        words = [
            option for option in options if not option.template.steps and "%" not in option.template.tail
        ]
        best: dict[tuple[Any, ...], list[tuple[Option, tuple[int, ...]]]] = {}
        for option in words:
            left = {form: value for form, value in self.forms(option).items() if form in ahead}
            keys = tuple(sorted((form, value) for form, value in left.items() if form[0] == "="))
            lengths = [value for form, value in sorted(left.items()) if form[0] != "="]
            sizes = (self.length(option.template.tail, {}), *lengths)
            rivals = best.setdefault(keys, [])
            if not any(all(a >= b for a, b in zip(other, sizes, strict=True)) for _, other in rivals):
                beaten = [r for r in rivals if all(a <= b for a, b in zip(r[1], sizes, strict=True))]
                best[keys] = [r for r in rivals if r not in beaten] + [(option, sizes)]
        kept = {option for rivals in best.values() for option, _ in rivals}
        return tuple(option for option in options if option not in words or option in kept)


@cache
def cut_piece(piece: str) -> tuple[list[str], list[str]]:
    """Returns the literals and the copies of a piece of a template, in turn."""
    parts = piece.replace("%(", "\0").replace(")s", "\0").split("\0")
    return parts[::2], parts[1::2]


@cache
def entropy(level: str) -> float:
    """Returns the mean of −ln P over all stories, in nats per story."""
    return float(_Entropy(grammar(level), None).total())


@cache
def mean_words(level: str) -> float:
    """Returns the mean number of words and punctuation marks of a story."""
    return float(_Mean(grammar(level), n_words).total())


@cache
def count_stories(level: str) -> int:
    """Returns the number of different stories."""
    return int(_Count(grammar(level), None).total())


@cache
def longest(level: str, measure: Measure = n_words) -> tuple[int, str]:
    """Returns the greatest length of a story, and a story of that length."""
    length, made = _Longest(grammar(level), measure).total()
    return length, build_story(made).text


@cache
def vocabulary(level: str) -> tuple[str, ...]:
    """Returns every word and punctuation mark of the stories of a level, in alphabetical order."""
    program, words = grammar(level), set[str]()
    for _, _, option in program.options():
        words.update(*(words_of(atom.text) for atom in option.template.atoms))
        words.update(*(words_of(value) for form, value in option.forms.items() if form in program.copied))
    return tuple(sorted(words))
