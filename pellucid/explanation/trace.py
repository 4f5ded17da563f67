"""A trace: a tape together with its model and tokens, so that cells can be shown with their tokens."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from pellucid.base import notebook
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.base.names import Name, describe
from pellucid.reference.op import Array, Index, Shape
from pellucid.reference.tape import ANY_AXES, Tape
from pellucid.text.tokenizer import show_blanks

if TYPE_CHECKING:
    from pellucid.server.explorer.export import TracePage


class More(NamedTuple):
    """The options that show what was cut: another part, deeper, all lines, more of the largest entries."""

    at: str
    depth: str
    lines: str
    top: str


IN_PYTHON = More("at=", "depth=", "lines=None", "top=")
IN_A_SHELL = More("--at ", "--depth", "--lines 0", "--top ")


PADDING = "(padding)"
"""The label of a position after the end of a shorter prompt."""


@dataclass(frozen=True, repr=False)
class Trace:
    """A run with all its values: print it to see their names.

    `run` says what was computed; `labels` holds the token at each index of an axis."""

    tape: Tape
    run: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        of = f" of {self.run['model']}" if isinstance(self.run.get("model"), str) else ""
        tokens = self.run.get("tokens")
        noun = "prompt" if isinstance(tokens, list) and isinstance(tokens[0], list) else "token"
        read = f" on {pluralize(len(tokens), noun)}" if isinstance(tokens, list) else ""
        what = f"{len(self.tape.steps):,} steps, {len(self.tape.values):,} values"
        return escape_controls(f"<Trace{of}{read}: {what}>", keep="")

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields every value of the run by name."""
        yield from format_overview(self)

    def to_data(self) -> list[dict[str, Any]]:
        """Returns the name, shape, axes and role of every value, as plain data."""
        return [
            {
                "name": name,
                "shape": list(value.shape),
                "axes": list(self.about(name).axes),
                "role": self.tape.roles[name],
            }
            for name, value in self.tape.values.items()
        ]

    def __str__(self) -> str:
        return escape_controls("\n".join((repr(self), *self.to_lines())))

    def _repr_html_(self) -> str:
        return notebook.branch(repr(self), (notebook.line("\n".join(self.to_lines())),), is_open=False)

    def about(self, name: str) -> Name:
        """Returns the glossary's entry, or a plain one for a value that is not in it."""
        rank = self.tape[name].ndim
        found = describe(name, self.tape.about)
        if found and len(found.axes) == rank:
            return found
        return Name(name, ANY_AXES[:rank], name, "", engines="reference")

    def size(self, name: str, axis: str) -> int:
        """Returns the length of an axis of a value."""
        return int(self.tape[name].shape[self.about(name).axes.index(axis)])

    def texts(self, name: str, axis: str, index: Sequence[int | None] = ()) -> list[str | None]:
        """Returns the token at each index of an axis, None where there is none; where `index`, the indices of
        the value's axes, fixes b, the tokens are those of that prompt."""
        labels = self._axis_labels(name, axis, index)
        # key positions may begin in a cache, so positions align at the end
        offset = len(labels) - self.size(name, axis) if axis in ("t", "s") else 0
        places = range(offset, offset + self.size(name, axis))
        return [labels[i] if 0 <= i < len(labels) else None for i in places]

    def label(self, name: str, axis: str, i: int, index: Sequence[int | None] = ()) -> str | None:
        """Returns the token at one index of an axis, None where there is none; `index` as for `texts`."""
        labels = self._axis_labels(name, axis, index)
        place = i + (len(labels) - self.size(name, axis) if labels and axis in ("t", "s") else 0)
        return labels[place] if 0 <= place < len(labels) else None

    def _axis_labels(self, name: str, axis: str, index: Sequence[int | None]) -> list[str]:
        rows = self._rows if axis in ("t", "s") else []
        b = dict(zip(self.about(name).axes, index, strict=False)).get("b") if rows else None
        return self.labels.get(axis, []) if b is None or b >= len(rows) else rows[b]

    @cached_property
    def _rows(self) -> list[list[str]]:
        """The label of each position of each prompt, where there are several."""
        ids, tokens = self.ids, self.run.get("tokens", [])
        vocabulary = self.labels.get("v", [])
        if "b" not in self.labels or not _are_rows(tokens, str):
            return []
        rows = [
            [
                vocabulary[id] if 0 <= id < len(vocabulary) else show_blanks(text)
                for id, text in zip(*row, strict=False)
            ]
            for row in zip(ids, tokens, strict=False)
        ]
        longest = max(map(len, rows), default=0)
        return [row + [PADDING] * (longest - len(row)) for row in rows]

    def address(self, name: str, index: Index) -> str:
        """Returns NAME[t=1,s=0], without the axes of length 1."""
        return name + format_index(self.places(name, index))

    def places(self, name: str, index: Index) -> list[tuple[str, int]]:
        """Returns (axis, index) for each axis of more than one entry."""
        shape, axes = self.tape[name].shape, self.about(name).axes
        return [(a, i) for a, i, size in zip(axes, index, shape, strict=True) if size > 1]

    @property
    def ids(self) -> list[list[int]]:
        """The token ids of each prompt; none where the record of the run has none."""
        ids = self.run.get("ids")
        return ids if _are_rows(ids, int) else []

    def value(self, name: str) -> Array:
        return self.tape[name]

    def page(self, size: int | None = None) -> "TracePage":
        """Returns this trace as one page on which numbers open, of about `size` bytes at most.

        A notebook shows up to 1 MB, which is the default, in a frame; `.save("trace.html")` writes it."""
        import pellucid  # the explorer lies above this layer: the package's lazy names reach it

        return pellucid.explore(self, size=size)


def _are_rows(given: Any, kind: type) -> TypeGuard[list[list[Any]]]:
    """Tests whether this is a list of lists of that type; a trace file may hold anything."""
    return isinstance(given, list) and all(
        isinstance(row, list) and all(type(entry) is kind for entry in row) for row in given
    )


def format_index(places: list[tuple[str, int]]) -> str:
    return f"[{','.join(f'{axis}={i}' for axis, i in places)}]" if places else ""


# ---- the tree of its names


_LAYER = re.compile(r"^((?:d\.)?blocks)\.(\d+)\.")


def format_tree(
    shapes: Mapping[str, Shape],
    also: Mapping[str, str] | None = None,
    described: Mapping[str, Name] = MappingProxyType({}),
) -> Iterator[str]:
    """Yields names as an indented tree with axes and sizes; layers like the first are listed once.

    `also` has remarks of its own, `described` the entries that steps of a tape added to the glossary.
    """
    layers = {int(found[2]) for name in shapes if (found := _LAYER.match(name))}
    shown = {name: shape for name, shape in shapes.items() if _find_layer(name) in (None, 0)}
    above: list[str] = []
    for name, shape in shown.items():
        *scope, leaf = _split(name)
        for depth, part in enumerate(scope):
            if above[: depth + 1] != scope[: depth + 1]:
                repeats = f"  … blocks.{max(layers)} alike" if part == "blocks.0" and len(layers) > 1 else ""
                yield f"{'  ' * depth}{part}{repeats}"
        above = scope
        about = describe(name, described)
        axes = about.axes if about and len(about.axes) == len(shape) else ("",) * len(shape)
        sizes = " ".join(
            f"{axis}={size}" if axis not in ("", "1") else str(size)
            for axis, size in zip(axes, shape, strict=True)
        )
        remark = (also or {}).get(name, about.meaning if about else "")
        yield f"{'  ' * len(scope) + leaf:<29} {f'[{sizes}]':<27} {remark}".rstrip()


def _find_layer(name: str) -> int | None:
    found = _LAYER.match(name)
    return int(found[2]) if found else None


def _split(name: str) -> list[str]:
    """Splits blocks.0.attn.q_proj.weight into blocks.0, attn, q_proj.weight; other names stay whole."""
    found = _LAYER.match(name)
    if not found:
        return [name]
    part, _, rest = name[found.end() :].partition(".")
    return [f"{found[1]}.{found[2]}", part, rest] if rest else [f"{found[1]}.{found[2]}", part]


def format_overview(trace: Trace) -> Iterator[str]:
    """Yields every value of a run by name: the forward pass as a tree, then the number of other values."""
    tape = trace.tape
    for title, roles in (("parameters", ("param",)), ("values", ("leaf", "act"))):
        yield f"{title}:"
        yield from format_tree(
            {
                name: tape.values[name].shape
                for name, role in tape.roles.items()
                if role in roles and "@" not in name and not name.startswith("d.")
            },
            described=tape.about,
        )
    gradients = sum(role == "grad" for role in tape.roles.values())
    updates = sum(role == "update" for role in tape.roles.values())
    same = ", ".join(f"{name} = {target}" for name, target in tape.aliases.items() if _is_plain(name))
    if same:
        yield f"other names: {same}"
    if gradients:
        yield f"and {gradients} gradients: d.NAME, and d.NAME.via.USER where a value has several users"
    if updates:
        yield f"and {updates} values of updates: NAME@k after k updates"


def _is_plain(name: str) -> bool:
    return not name.startswith("d.") and "@" not in name and _find_layer(name) in (None, 0)
