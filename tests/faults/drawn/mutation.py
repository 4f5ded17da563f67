"""A mutation: one piece of a line replaced by another text. It is found again by the line, not its number."""

from dataclasses import dataclass, replace

from tests.faults.drawn.areas import ROOT


class Gone(Exception):
    """The line that a mutation changes is no longer in its file."""


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file where an operator applies, and what it may become."""

    file: str
    line: int
    column: int
    """In characters, from the beginning of the line."""
    before: str
    options: tuple[str, ...]
    operator: str


@dataclass(frozen=True)
class Mutation:
    number: int
    """In the order of drawing, from 1."""
    seed: int
    area: str
    file: str
    """Relative to the repository."""
    line: int
    """Its number when it was drawn."""
    operator: str
    occurrence: int
    """How many lines of the same text stand above it."""
    column: int
    """In characters, from the first that is not a space."""
    before: str
    after: str
    text: str
    """The line without the spaces at both ends."""

    def apply(self, source: str) -> str:
        """Returns the source with this piece replaced. Raises Gone where it is not there."""
        start = self._find(source)
        return source[:start] + self.after + source[start + len(self.before) :]

    def _find(self, source: str) -> int:
        at, seen = 0, 0
        for line in source.splitlines(keepends=True):
            if line.strip() == self.text:
                if seen == self.occurrence:
                    start = at + len(line) - len(line.lstrip()) + self.column
                    if source.startswith(self.before, start):
                        return start
                    break
                seen += 1
            at += len(line)
        raise Gone(f"{self.file}: {self.text}")

    def locate(self) -> "Mutation":
        """Returns the same mutation with the number that its line has now. Raises Gone."""
        source = read_source(self.file)
        return replace(self, line=source.count("\n", 0, self._find(source)) + 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.operator}: {self.before} -> {self.after}    | {self.text}"


def make_mutation(number: int, seed: int, area: str, place: Place, after: str) -> Mutation:
    lines = read_source(place.file).splitlines()
    line = lines[place.line - 1]
    text = line.strip()
    above = sum(other.strip() == text for other in lines[: place.line - 1])
    column = place.column - (len(line) - len(line.lstrip()))
    return Mutation(
        number, seed, area, place.file, place.line, place.operator, above, column, place.before, after, text
    )


def read_source(file: str) -> str:
    return (ROOT / file).read_text("utf-8")
