"""Stories by seed and number: any one can be made without those before it."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice

import numpy as np

from pellucid.data.generated.stories.grammar import Grammar, GrammarError, Option, StoryTemplate
from pellucid.data.generated.stories.levels import grammar


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """A text, the options that made it, and the natural logarithm of its probability."""

    text: str
    options: tuple[Option, ...]
    log_probability: float

    @property
    def choices(self) -> list[tuple[str, str]]:
        return [(option.choice, option.label) for option in self.options]


def story(level: str, seed: int, number: int) -> Story:
    return next(stories(level, seed, start=number, count=1))


def stories(
    level: str, seed: int, start: int = 0, count: int | None = None, block: int = 256
) -> Iterator[Story]:
    """Yields stories `start`, `start` + 1, …, endless unless a count is given. Blocks are for speed only."""
    if seed < 0 or start < 0:
        raise GrammarError(f"seed={seed} and start={start} count from 0; use any seed from 0 on.")
    program = grammar(level)
    blocks = (
        story
        for first in numbers(start, block)
        for story in _block(
            program, seed, first, block if count is None else min(block, start + count - first)
        )
    )
    return blocks if count is None else islice(blocks, count)


def draws(program: Grammar, seed: int, start: int, count: int) -> list[list[float]]:
    """One row of uniform numbers per story. Philox turns a counter into numbers (four at a time), so the
    place of a row depends on its story's number alone."""
    fours = -(-program.most_choices // 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=start * fours))
    rows: list[list[float]] = generator.random((count, 4 * fours)).tolist()
    return rows


def _block(program: Grammar, seed: int, start: int, count: int) -> Iterator[Story]:
    for row in draws(program, seed, start, count):
        pieces: list[str] = []
        made: list[Option] = []
        forms = {"": ""}
        _write(program.start, forms, iter(row).__next__, pieces, made)
        yield Story("".join(pieces) % forms, tuple(made), sum([option.ln for option in made]))


def _write(
    template: StoryTemplate,
    forms: dict[str, str],
    draw: Callable[[], float],
    pieces: list[str],
    made: list[Option],
) -> None:
    for before, key, tables in template.steps:
        table = tables[forms[key]]
        option = table.options[bisect_right(table.bounds, draw())]
        made.append(option)
        if option.forms:
            forms.update(option.forms)
        pieces.append(before)
        if option.template.steps:
            _write(option.template, forms, draw, pieces, made)
        else:  # the usual case: a word, not worth a call
            pieces.append(option.template.tail)
    pieces.append(template.tail)


def build_story(options: tuple[Option, ...]) -> Story:
    """Returns the story of a derivation, given by its options in order."""
    rest = iter(options)
    forms: dict[str, str] = {}

    def text(option: Option) -> str:
        forms.update(option.forms)
        pieces = [before + text(next(rest)) for before, _, _ in option.template.steps]
        return "".join(pieces) + option.template.tail

    return Story(text(next(rest)) % forms, options, sum([option.ln for option in options]))
