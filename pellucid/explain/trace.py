"""A trace: a tape together with what was run, so that its cells can be shown with their tokens."""

from dataclasses import dataclass, field
from typing import Any

from pellucid.names import Name, describe
from pellucid.reference.op import Array, Index
from pellucid.reference.tape import ANY_AXES, Tape


@dataclass(frozen=True)
class Trace:
    """`run` says what was computed; `labels` gives the text of each place on an axis."""

    tape: Tape
    run: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)

    def about(self, name: str) -> Name:
        """The glossary's entry, or a plain one for a value that nobody described."""
        found = describe(name, self.tape.about)
        rank = self.tape[name].ndim
        if found and len(found.axes) == rank:
            return found
        return Name(name, ANY_AXES[:rank], name, "", engines="reference")

    def label(self, name: str, axis: str, i: int) -> str | None:
        """The token at a place. Positions looked at may begin in a cache, so they align at the end."""
        labels = self.labels.get(axis)
        if labels is None:
            return None
        size = self.tape[name].shape[self.about(name).axes.index(axis)]
        offset = len(labels) - size if axis in "ts" else 0
        return labels[i + offset] if 0 <= i + offset < len(labels) else None

    def address(self, name: str, index: Index) -> str:
        """NAME[t=1,s=0], without the axes that have only one place."""
        return name + bracketed(self.places(name, index))

    def places(self, name: str, index: Index) -> list[tuple[str, int]]:
        shape, axes = self.tape[name].shape, self.about(name).axes
        return [(a, i) for a, i, size in zip(axes, index, shape, strict=True) if size > 1]

    def value(self, name: str) -> Array:
        return self.tape[name]


def bracketed(places: list[tuple[str, int]]) -> str:
    return f"[{','.join(f'{axis}={i}' for axis, i in places)}]" if places else ""
