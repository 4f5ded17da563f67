"""The stories of a level of the grammar, as a constraint: `stories:tiny`, `stories:easy`, `stories:full`.

Later text copies earlier choices, so the stories are far too many states for a table. A state is the set of
derivations that agree with the text so far, each with the forms that its rest may still look at, and is made
when a text reaches it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.errors import TokenError
from pellucid.data.generated.stories.exact import Lookahead, Position, cut_piece
from pellucid.data.generated.stories.grammar import Grammar, Option
from pellucid.data.generated.stories.levels import grammar
from pellucid.data.generated.stories.lexicon import spaced_words_of
from pellucid.generation.constraints.automaton import DEAD
from pellucid.generation.constraints.token_mask import UNREACHABLE, Constraint, NextTokens
from pellucid.generation.constraints.token_table import END, TokenTable, Trie, count_spelling

MOST_STATES = 100_000
"""States after which `compile_constraint` begins a new constraint."""

Forms = tuple[tuple[str, str], ...]
Cost = tuple[float, float]
"""The tokens of a text after a space that is not written yet, its own included, and after anything else."""


class Reading(NamedTuple):
    """One derivation that agrees with the text so far."""

    words: tuple[bytes, ...]
    """What comes next: words and marks, each with the space before it; of the first, what is left of it."""
    place: Position | None
    """Where the story goes on after that; None is its end."""
    is_written: bool
    """Whether the text before the choice at this place is among what was read."""
    forms: Forms


Readings = frozenset[Reading]


class StoryConstraint(Constraint):
    """The texts that `corpora.stories.parse` accepts at a level."""

    def __init__(self, name: str, level: str, tokens: TokenTable, stop_ids: frozenset[int]) -> None:
        super().__init__(name, tokens, stop_ids)
        self.lookahead = Lookahead()
        program = grammar(level)
        self.shortest = _Shortest(program, self.lookahead, tokens)
        self.states: list[Readings] = []
        self.numbers: dict[Readings, int] = {}
        self._add(frozenset(self._expand(Position(program.start, 0, None), False, {"": ""})))
        if self.count_needed(self.start) >= UNREACHABLE:
            raise TokenError(
                f"{name} has no story that the tokens of this tokenizer can spell word by word: use a model "
                "that was trained on these stories, or one with a byte-level tokenizer."
            )

    @property
    def is_full(self) -> bool:
        return len(self.states) > MOST_STATES

    def is_complete(self, state: int) -> bool:
        return any(not reading.words and reading.place is None for reading in self.states[state])

    def _add(self, readings: Readings) -> int:
        if readings not in self.numbers:
            self.states.append(readings)
            self.numbers[readings] = len(self.states) - 1
        return self.numbers[readings]

    def _walk(self, state: int, piece: bytes) -> int:
        readings = self.states[state]
        for byte in piece:
            readings = self._follow(readings).get(byte, frozenset())
        return self._add(readings) if readings else DEAD

    def _find_next(self, state: int) -> NextTokens:
        ids, needed = list[int](), list[float]()
        waiting: list[tuple[Trie, Readings]] = [
            (self.tokens.first_trie if state == self.start else self.tokens.rest_trie, self.states[state])
        ]
        while waiting:
            node, readings = waiting.pop()
            if END in node:
                count = min(map(self.shortest.count, readings))
                if count < math.inf:
                    ids += node[END]
                    needed += [count] * len(node[END])
            if len(node) > (END in node):
                after = self._follow(readings)
                waiting += [(node[byte], after[byte]) for byte in after if byte in node]
        order = np.argsort(ids, kind="stable")
        return NextTokens(np.array(ids, np.int32)[order], np.array(needed, np.int32)[order])

    def _follow(self, readings: Readings) -> dict[int, Readings]:
        """Returns the readings after each byte that can come next."""
        found: dict[int, list[Reading]] = {}
        for reading in readings:
            if not reading.words:
                continue
            word, *words = reading.words
            after = found.setdefault(word[0], [])
            if len(word) > 1:
                after.append(reading._replace(words=(word[1:], *words)))
            elif words:
                after.append(reading._replace(words=tuple(words)))
            else:
                after += self._expand(reading.place, reading.is_written, dict(reading.forms))
        return {byte: frozenset(after) for byte, after in found.items()}

    def _expand(
        self, place: Position | None, is_written: bool, forms: Mapping[str, str]
    ) -> Iterator[Reading]:
        """Yields the readings that a place begins with, each with a word to read, or at the end."""
        if place is None:
            yield Reading((), None, False, ())
            return
        template, step, rest = place
        if step == len(template.steps):
            yield from self._read(template.tail, rest, False, forms)
        elif not is_written:
            yield from self._read(template.steps[step][0], place, True, forms)
        else:
            _, key, tables = template.steps[step]
            after = Position(template, step + 1, rest)
            for option in tables[forms[key]].options:
                yield from self._expand(Position(option.template, 0, after), False, {**forms, **option.forms})

    def _read(
        self, piece: str, place: Position | None, is_written: bool, forms: Mapping[str, str]
    ) -> Iterator[Reading]:
        text = piece % forms if "%" in piece else piece
        if text:
            ahead = self.lookahead.ahead(place)
            live = tuple(sorted(item for item in forms.items() if item[0] in ahead or f"={item[0]}" in ahead))
            yield Reading(_spaced_bytes(text), place, is_written, live)
        else:
            yield from self._expand(place, is_written, forms)


@cache
def _spaced_bytes(text: str) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in spaced_words_of(text))


class _Shortest:
    """How many tokens suffice to complete a reading, where each word is spelled by tokens of its own.

    A recursion over places, as in `corpora.stories.exact`: of the past only the keys that are still asked for
    are kept, and whether a space comes before the next word. So a word that is copied later counts as much as
    the longest in its place that can be spelled; a count is never too small, and every token on the way to
    the end that it found makes it smaller by one or more.
    """

    def __init__(self, program: Grammar, lookahead: Lookahead, tokens: TokenTable) -> None:
        self.program, self.lookahead, self.spellings = program, lookahead, tokens.spellings
        self._spelled: dict[bytes, float] = {}
        self._costs: dict[str, Cost] = {}
        self._counts: dict[Any, float] = {}
        self._readings: dict[Reading, float] = {}

    def count(self, reading: Reading) -> float:
        """Returns the number of tokens that complete a reading, infinite where none do."""
        if reading not in self._readings:
            if len(self._readings) > MOST_STATES:
                self._readings.clear()
            is_spaced = reading.words[-1:] == (b" ",)
            words = reading.words[:-1] if is_spaced else reading.words
            forms = {form: value for text in reading.forms for form, value in self._remember(*text)}
            rest = self._continue(reading.place, reading.is_written, forms, is_spaced)
            self._readings[reading] = sum(map(self._spell, words)) + rest
        return self._readings[reading]

    def _spell(self, word: bytes) -> float:
        return count_spelling(word, self.spellings, self._spelled)

    def _remember(self, form: str, text: str) -> list[tuple[str, Any]]:
        """Returns a form as it is asked for, and the tokens of its copies."""
        own, most = self._cost(text), self._largest[form]
        spaced, bare = (
            math.inf if cost == math.inf else bound for cost, bound in zip(own, most, strict=True)
        )
        return [(f"={form}", text), (form, (spaced, bare))]

    @cached_property
    def _largest(self) -> dict[str, Cost]:
        """The largest finite costs of each form."""
        found: dict[str, list[Cost]] = {"": [(0, 0)]}
        for _, _, option in self.program.options():
            for form, text in option.forms.items():
                found.setdefault(form, []).append(self._cost(text))
        return {
            form: (_largest_finite(a for a, _ in costs), _largest_finite(b for _, b in costs))
            for form, costs in found.items()
        }

    def _cost(self, text: str) -> Cost:
        if text not in self._costs:
            spaced, bare = spaced_words_of(f" {text}"), spaced_words_of(text)
            self._costs[text] = (self._sum(spaced), self._sum(bare))
        return self._costs[text]

    def _sum(self, words: list[str]) -> float:
        return sum(self._spell(word.encode()) for word in words)

    def _measure(self, piece: str, forms: Mapping[str, Any], is_spaced: bool) -> tuple[float, bool]:
        """Returns the tokens of a piece of a template, and whether its last space is still to be written."""
        literals, copies = cut_piece(piece)
        total = 0.0
        for number, literal in enumerate(literals):
            if number:
                total += forms[copies[number - 1]][0 if is_spaced else 1]
                is_spaced = False
            if literal:
                words = spaced_words_of(" " + literal if is_spaced else literal)
                is_spaced = words[-1] == " "
                total += self._sum(words[:-1] if is_spaced else words)
        return total, is_spaced

    def _continue(
        self, place: Position | None, is_written: bool, forms: Mapping[str, Any], is_spaced: bool
    ) -> float:
        if place is None:
            return self._spell(b" ") if is_spaced else 0
        ahead = self.lookahead.ahead(place)
        live = {form: value for form, value in forms.items() if form in ahead}
        memory = (place, is_written, is_spaced, frozenset(live.items()))
        if memory not in self._counts:
            if len(self._counts) > 10 * MOST_STATES:
                self._counts.clear()
            self._counts[memory] = self._count_place(place, is_written, live, is_spaced)
        return self._counts[memory]

    def _count_place(
        self, place: Position, is_written: bool, forms: Mapping[str, Any], is_spaced: bool
    ) -> float:
        template, step, rest = place
        if step == len(template.steps):
            count, is_spaced = self._measure(template.tail, forms, is_spaced)
            return count + self._continue(rest, False, forms, is_spaced)
        before, key, tables = template.steps[step]
        if not is_written:
            count, is_spaced = self._measure(before, forms, is_spaced)
            return count + self._continue(place, True, forms, is_spaced)
        after = Position(template, step + 1, rest)
        return min(
            self._continue(
                Position(option.template, 0, after), False, {**forms, **self._forms(option)}, is_spaced
            )
            for option in tables[forms[f"={key}"]].options
        )

    def _forms(self, option: Option) -> dict[str, Any]:
        return {form: value for text in option.forms.items() for form, value in self._remember(*text)}


def _largest_finite(costs: Iterable[float]) -> float:
    return max((cost for cost in costs if cost < math.inf), default=math.inf)
