"""A trace: a tape together with what was run, so that its cells can be shown with their tokens."""

from dataclasses import dataclass, field
from typing import Any

from pellucid import notebook
from pellucid.format import escape_controls
from pellucid.names import Name, describe
from pellucid.reference.op import Array, Index
from pellucid.reference.tape import ANY_AXES, Tape


@dataclass(frozen=True, repr=False)
class Trace:
    """A run with all its numbers: print it to see their names.

    `run` says what was computed; `labels` gives the text of each place on an axis."""

    tape: Tape
    run: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        of = f" of {self.run['model']}" if isinstance(self.run.get("model"), str) else ""
        tokens = self.run.get("tokens")
        read = f" on {len(tokens)} token{'s' * (len(tokens) != 1)}" if isinstance(tokens, list) else ""
        what = f"{len(self.tape.steps):,} steps, {len(self.tape.values):,} values"
        return escape_controls(f"<Trace{of}{read}: {what}>", keep="")

    def __str__(self) -> str:
        from pellucid.explain.overview import overview

        return escape_controls("\n".join((repr(self), *overview(self))))

    def _repr_html_(self) -> str:
        from pellucid.explain.overview import overview

        return notebook.branch(repr(self), (notebook.line("\n".join(overview(self))),), is_open=False)

    def about(self, name: str) -> Name:
        """The glossary's entry, or a plain one for a value that nobody described."""
        found = describe(name, self.tape.about)
        rank = self.tape[name].ndim
        if found and len(found.axes) == rank:
            return found
        return Name(name, ANY_AXES[:rank], name, "", engines="reference")

    def size(self, name: str, axis: str) -> int:
        """How many places an axis of a value has."""
        return int(self.tape[name].shape[self.about(name).axes.index(axis)])

    def texts(self, name: str, axis: str) -> list[str | None]:
        """The token at each place of an axis, None where it has no text."""
        labels, offset = self.labels.get(axis, []), self._offset(name, axis)
        places = range(offset, offset + self.size(name, axis))
        return [labels[i] if 0 <= i < len(labels) else None for i in places]

    def label(self, name: str, axis: str, i: int) -> str | None:
        """The token at a place, None where it has no text."""
        labels = self.labels.get(axis, [])
        place = i + (self._offset(name, axis) if labels else 0)
        return labels[place] if 0 <= place < len(labels) else None

    def _offset(self, name: str, axis: str) -> int:
        """Positions looked at may begin in a cache, so positions align with the tokens at the end."""
        return len(self.labels.get(axis, [])) - self.size(name, axis) if axis in ("t", "s") else 0

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
