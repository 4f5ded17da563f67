"""Every choice of a story, read back from its text alone, by the program that writes it."""

import math
from collections.abc import Iterator

from pellucid.data.generated.stories.generate import Story
from pellucid.data.generated.stories.grammar import GrammarError, Option, StoryTemplate
from pellucid.data.generated.stories.levels import grammar


class UnparsableText(GrammarError):
    """A text that the grammar cannot write."""


def parse(level: str, text: str) -> list[tuple[str, str]]:
    """Returns the (choice, option) pairs of a text, in the order of the derivation."""
    return read(level, text).choices


def log_probability(level: str, text: str) -> float:
    """Returns ln P(text) under the grammar; −∞ for a text that is not in it (`read` says why)."""
    try:
        return read(level, text).log_probability
    except UnparsableText:
        return -math.inf


def read(level: str, text: str) -> Story:
    """Returns the story that has this text."""
    reader = _Reader(text)
    found = [
        made for end, _, made in reader.ways(grammar(level).start, 0, {"": ""}) if reader.is_complete(end)
    ]
    if not found:
        raise UnparsableText(f"the {level} grammar cannot write this text: {reader.reason()}")
    if len(found) > 1:
        raise GrammarError(f"the {level} grammar writes this text in {len(found)} ways: {text!r}.")
    return Story(text, found[0], sum([option.ln for option in found[0]]))


def accepted_length(level: str, text: str) -> int:
    """Returns the number of characters at the beginning of a text with which some story begins; up to the
    word that no story has there.

    >>> accepted_length("tiny", "Once there was a frog."), len("Once there was a ")
    (17, 17)
    """
    reader = _Reader(text)
    for end, _, _ in reader.ways(grammar(level).start, 0, {"": ""}):
        if reader.is_complete(end):
            return len(text)
    return min(reader.furthest, len(text))


Way = tuple[int, dict[str, str], tuple[Option, ...]]


class _Reader:
    """Follows every derivation that agrees with the text, and remembers where the last of them failed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.furthest = 0
        self.expected: set[str] = set()

    def ways(self, template: StoryTemplate, at: int, forms: dict[str, str], step: int = 0) -> Iterator[Way]:
        """(end, forms known by then, options) for each way in which the template can start at `at`."""
        if step == len(template.steps):
            end = self._after(template.tail, at, forms)
            if end is not None:
                yield end, forms, ()
            return
        before, key, tables = template.steps[step]
        here = self._after(before, at, forms)
        if here is None:
            return
        for option in tables[forms[key]].options:
            first = option.template.steps[0][0] if option.template.steps else option.template.tail
            if self._after(first.partition("%")[0], here, forms) is None:
                continue  # most options end here, before anything is copied
            for middle, known, made in self.ways(option.template, here, forms | option.forms):
                for end, all_known, rest in self.ways(template, middle, known, step + 1):
                    yield end, all_known, (option, *made, *rest)

    def _after(self, piece: str, at: int, forms: dict[str, str]) -> int | None:
        wanted = piece % forms if "%" in piece else piece
        if self.text.startswith(wanted, at):
            return at + len(wanted)
        self._note(wanted, at)
        return None

    def _note(self, wanted: str, at: int) -> None:
        """Keeps the words that were expected at the furthest place where a word differed."""
        same = 0
        while at + same < len(self.text) and self.text[at + same] == wanted[same]:
            same += 1
        place = max(at, at + wanted.rfind(" ", 0, same + 1) + 1)
        if word := wanted[place - at :].strip().split(" ")[0]:
            self._expect(word, place)

    def is_complete(self, end: int) -> bool:
        """Returns whether a derivation that ends here has consumed the text."""
        if end < len(self.text):
            self._expect("", end + self.text.startswith(" ", end))
        return end == len(self.text)

    def _expect(self, word: str, place: int) -> None:
        if place > self.furthest:
            self.furthest, self.expected = place, set()
        if place == self.furthest:
            self.expected.add(word)

    def reason(self) -> str:
        good, bad = self.text[: self.furthest], self.text[self.furthest :].strip().split(" ")[0]
        some = [repr(word) if word else "the end" for word in sorted(self.expected)]
        wanted = ", ".join(some[:8]) + (", …" if len(some) > 8 else "")
        has = repr(bad) if bad else "the end"
        return f"after {good[-40:]!r} it has {has}, where it could go on with {wanted}."
