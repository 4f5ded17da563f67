"""A grammar is a program of named choices: each writes the text of one of its options, at once.

An option is a template, written in a small notation:

    [hero]                      make the choice `hero` here
    [hero_name:hero.gender]     make it among the options listed under an earlier word's form
    {hero}  {hero.he}           copy an earlier choice, or one of its forms
    fox@hero                    this word means the hero (they@hero+helper: both)
    ran~hero  said~>helper      this verb's subject is the last (~) or the next (~>) word that means them
    who@hero+clause ran~clause  `who` is the subject of its own clause, and of no verb after it

The marks @ and ~ are for the annotation and leave no trace in the text. A choice happens at most once in
a story, and where it happens it writes: a reader who goes from left to right learns every choice in order.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pellucid.base.errors import PellucidError


class GrammarError(PellucidError):
    """A grammar that contradicts itself."""


@dataclass(frozen=True)
class Word:
    """An option with forms that later text may copy; its probability is its share of the weights."""

    text: str
    forms: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1


Source = Sequence[str | Word]
Sources = Mapping[str, Source | Mapping[str, Source]]

_WEIGHT = re.compile(r"(\d+)\| ")
_ATOM = re.compile(
    r"(?:\[(?P<choice>\w+)(?::(?P<key>[\w.]+))?\]|\{(?P<copy>\w+(?:\.\w+)?)\}|(?P<text>[^\[\]{}@~]+))"
    r"(?:(?P<mark>@|~>|~)(?P<whom>[a-z_]+(?:\+[a-z_]+)*))?"
)


@dataclass(frozen=True, slots=True)
class Atom:
    """The smallest part of a template: a choice, a copy, or words as they stand."""

    choice: str = ""
    key: str = ""
    copy: str = ""
    text: str = ""
    mark: str = ""
    whom: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        """For the % operator: a copy is filled in from the forms known at the end of the story."""
        return f"%({self.copy})s" if self.copy else self.text


@dataclass(frozen=True, slots=True, eq=False)
class StoryTemplate:
    """Text and choices in turn: `steps` are (text before, key, tables of the choice), `tail` comes last."""

    atoms: tuple[Atom, ...]
    steps: tuple[tuple[str, str, "Tables"], ...]
    tail: str


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    choice: str
    label: str
    template: StoryTemplate
    forms: dict[str, str]
    weight: int
    probability: float
    ln: float

    def __repr__(self) -> str:
        return f"{self.choice}={self.label!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The options of a choice under one key; `bounds` cut [0, 1) into their probabilities."""

    options: tuple[Option, ...]
    bounds: list[float]


Tables = dict[str, Table]


def atoms_of(source: str) -> tuple[Atom, ...]:
    """
    >>> [atom.format or atom.choice for atom in atoms_of("A [hero] ran~hero to {hero.his} mother.")]
    ['A ', 'hero', ' ran', ' to ', '%(hero.his)s', ' mother.']
    """
    atoms, at = [], 0
    while at < len(source):
        found = _ATOM.match(source, at)
        if found is None:
            raise GrammarError(f"the template {source!r} cannot be read from {source[at:]!r} on.")
        part = {name: value or "" for name, value in found.groupdict().items()}
        whom = tuple(part.pop("whom").split("+")) if part["whom"] else ()
        part.pop("whom", None)
        atoms.append(Atom(**part, whom=whom))
        at = found.end()
    return tuple(atoms)


class Grammar:
    """Every choice of a level, compiled: `start` is the template of a whole story."""

    def __init__(self, sources: Sources, start: str = "story") -> None:
        self._sources = sources
        self._compiled: dict[str, Tables] = {}
        written = [
            atoms_of(_WEIGHT.sub("", word.text if isinstance(word, Word) else word, count=1))
            for by_key in map(_by_key, sources.values())
            for source in by_key.values()
            for word in source
        ]
        # only what is copied or asked for later has to be remembered
        self.copied = {atom.copy for atoms in written for atom in atoms if atom.copy}
        self.keys = {atom.key for atoms in written for atom in atoms if atom.key}
        self.start = self._template(f"[{start}]")
        self.most_choices = self._most_choices(self.start)
        self._refuse_repeats()
        if unused := sources.keys() - self._compiled.keys():
            raise GrammarError(f"no story ever makes the choice {sorted(unused)}: use it or omit it.")

    def _tables(self, name: str) -> Tables:
        if name not in self._sources:
            raise GrammarError(f"a template asks for [{name}], and the grammar has no such choice.")
        if name not in self._compiled:
            by_key = _by_key(self._sources[name])
            self._compiled[name] = {key: self._table(name, source) for key, source in by_key.items()}
        return self._compiled[name]

    def _template(self, source: str) -> StoryTemplate:
        atoms = atoms_of(source)
        steps, before = [], ""
        for atom in atoms:
            if atom.choice:
                steps.append((before, atom.key, self._tables(atom.choice)))
                before = ""
            else:
                before += atom.format
        return StoryTemplate(atoms, tuple(steps), before)

    def _table(self, name: str, source: Source) -> Table:
        words = [word if isinstance(word, Word) else _plain(word) for word in source]
        total = sum(word.weight for word in words)
        options = tuple(self._option(name, word, total) for word in words)
        if len({option.label for option in options}) < len(options):
            raise GrammarError(f"[{name}] lists an option twice: {[option.label for option in options]}.")
        return Table(options, [sum_ / total for sum_ in accumulate(word.weight for word in words)][:-1])

    def _option(self, name: str, word: Word, total: int) -> Option:
        template = self._template(word.text)
        forms = {name: "".join(atom.text for atom in template.atoms)}
        forms |= {f"{name}.{form}": value for form, value in word.forms.items()}
        known = {form: value for form, value in forms.items() if form in self.copied | self.keys}
        label = "".join(
            f"[{a.choice}]" if a.choice else f"{{{a.copy}}}" if a.copy else a.text for a in template.atoms
        )
        probability = word.weight / total
        return Option(name, label, template, known, word.weight, probability, math.log(probability))

    def options(self) -> Iterator[tuple[str, str, Option]]:
        """Yields every (choice, key, option) that some story can hold."""
        for name, tables in self._compiled.items():
            for key, table in tables.items():
                for option in table.options:
                    yield name, key, option

    def _most_choices(self, template: StoryTemplate) -> int:
        return sum(
            1
            + max(
                self._most_choices(option.template) for table in tables.values() for option in table.options
            )
            for _, _, tables in template.steps
        )

    def _refuse_repeats(self) -> None:
        """Copies are filled in at the end, so no choice may be made twice on the way there."""
        within: dict[str, set[str]] = {}

        def choices_of(template: StoryTemplate) -> set[str]:
            all_: set[str] = set()
            for atom in template.atoms:
                if atom.choice:
                    if atom.choice not in within:
                        options = [o for name, _, o in self.options() if name == atom.choice]
                        within[atom.choice] = {atom.choice}.union(*(choices_of(o.template) for o in options))
                    if twice := all_ & within[atom.choice]:
                        raise GrammarError(f"one story could make the choice {sorted(twice)} twice.")
                    all_ |= within[atom.choice]
            return all_

        choices_of(self.start)


def _by_key(source: Source | Mapping[str, Source]) -> Mapping[str, Source]:
    return source if isinstance(source, Mapping) else {"": source}


def _plain(source: str) -> Word:
    """An option without forms; a leading number and a bar are its weight: '3| Once upon a time'."""
    found = _WEIGHT.match(source)
    return Word(source[found.end() :], weight=int(found[1])) if found else Word(source)
