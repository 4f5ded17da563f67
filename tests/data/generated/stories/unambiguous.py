"""A proof that no text has two derivations, for grammars far too large to list.

The grammar becomes an automaton that reads words. It forgets the past: a copy may be any form that the
copied choice can leave, a choice may take any option under any key. So it accepts more than the grammar
writes, and if even it has one path per text, so has the grammar. (The first option in which two derivations
differ would be chosen under the same past, from one table, where no two options read alike; the automaton
would go two ways there.) Two paths over one text are a path in the square of the automaton that leaves the
diagonal and comes back.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pellucid.data.generated.stories.grammar import Grammar, StoryTemplate
from pellucid.data.generated.stories.levels import grammar
from pellucid.data.generated.stories.lexicon import words_of


class _Place(NamedTuple):
    """Words still to be read, then the next atom of a template, then where the story goes on."""

    words: tuple[str, ...]
    template: StoryTemplate | None
    atom: int
    rest: "_Place | None"


_END = _Place((), None, 0, None)
Step = tuple[str, _Place]


class _Automaton:
    def __init__(self, program: Grammar) -> None:
        self.program = program
        self.forms: dict[str, set[str]] = {}
        self.templates: dict[str, dict[str, StoryTemplate]] = {}
        for name, _, option in program.options():
            self.templates.setdefault(name, {}).setdefault(option.label, option.template)
            for form, value in option.forms.items():
                self.forms.setdefault(form, set()).add(value)
        self.steps = cache(lambda place: tuple(self._steps(place)))

    def _steps(self, place: _Place) -> Iterator[Step]:
        """Every (word, next place): one entry for each path, so that a double entry is an ambiguity."""
        words, template, atom_number, rest = place
        if words:
            yield words[0], place._replace(words=words[1:])
        elif template is None:
            yield "", _END
        elif atom_number == len(template.atoms):
            yield from self._steps(rest or _END)
        else:
            atom = template.atoms[atom_number]
            after = _Place((), template, atom_number + 1, rest)
            if atom.choice:
                for inner in self.templates[atom.choice].values():
                    yield from self._steps(_Place((), inner, 0, after))
            else:
                for text in sorted(self.forms[atom.copy]) if atom.copy else [atom.text]:
                    yield from self._steps(after._replace(words=tuple(words_of(text))))


def two_ways(program: Grammar) -> str | None:
    """A text that two derivations share if context is forgotten; None proves that there is none."""
    automaton = _Automaton(program)
    start = _Place((), program.start, 0, None)
    # every pair, with the one it came from and the word read on the way: enough to write the ambiguous text
    seen: dict[tuple[_Place, _Place], tuple[tuple[_Place, _Place] | None, str]] = {(start, start): (None, "")}
    todo = [(start, start)]
    while todo:
        pair = todo.pop()
        left, right = (automaton.steps(place) for place in pair)
        by_word: dict[str, list[int]] = {}
        for k, (word, _) in enumerate(right):
            by_word.setdefault(word, []).append(k)
        for i, (word, one) in enumerate(left):
            for k in by_word.get(word, ()):
                if pair[0] == pair[1] and k < i:
                    continue  # the same two ways, seen from the other side
                other = right[k][1]
                parted = pair[0] != pair[1] or i != k
                if parted and one == other:
                    return f"{_text(seen, pair)} {word}".strip()
                if one != _END and (one, other) not in seen:
                    seen[one, other] = (pair, word)
                    todo.append((one, other))
    return None


def _text(
    seen: dict[tuple[_Place, _Place], tuple[tuple[_Place, _Place] | None, str]], at: tuple[_Place, _Place]
) -> str:
    words: list[str] = []
    came: tuple[_Place, _Place] | None = at
    while came is not None:
        came, word = seen[came]
        words.append(word)
    return " ".join(reversed(words)).strip()


@cache
def is_unambiguous(level: str) -> bool:
    return two_ways(grammar(level)) is None
