"""A name table: which array of another program is which of our values, and in which order its axes are.

A table is TOML, written by a user or shipped in `name_tables.toml`. An entry is one of

    "h.{l}.attn.q" = "blocks.{l}.attn.q"
    "h.{l}.attn.q" = {name = "blocks.{l}.attn.q", axes = "b t (h d)"}
    "h.{l}.attn.qkv" = [{name = "blocks.{l}.attn.q"}, …]        concatenated along their last axis
    "h.{l}.attn" = []                                           no counterpart: ignored
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, UsageError, did_you_mean
from pellucid.base.files import read_text
from pellucid.base.toml import parse_toml
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Shape
from pellucid.verification.foreign_values import RecordedValue

EXAMPLE = '"h.{l}.attn.q" = "blocks.{l}.attn.q"'
_LETTER = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Target:
    """One of our values, and the order of their axes where it is not ours."""

    name: str
    axes: str | None = None


@dataclass(frozen=True)
class NameRule:
    """Their name as a pattern, `h.{l}.attn.q`, and the values of ours that such an array holds: one, several
    concatenated along its last axis, or none."""

    theirs: str
    targets: tuple[Target, ...]
    line: int | None = None

    def resolve(self, name: str) -> list[Target] | None:
        """Returns the targets for one of their names, or None where the pattern does not match it."""
        pattern = "".join(
            f"(?P<{part[1:-1]}>[^.]+)" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{\w+\})", self.theirs)
        )
        if (found := re.fullmatch(pattern, name)) is None:
            return None
        return [Target(_LETTER.sub(lambda letter: found[letter[1]], to.name), to.axes) for to in self.targets]


@dataclass(frozen=True)
class NameTable:
    """Rules in their order. Every entry of a user's table must match (`source` is the file); a shipped table
    also has entries for modules that a model need not have."""

    rules: tuple[NameRule, ...] = ()
    source: str | None = None

    def place(self, rule: NameRule) -> str:
        line = "" if rule.line is None else f", line {rule.line}"
        return f"{self.source}{line}: " if self.source else ""


# ---- reading


@cache
def _read_shipped() -> dict[str, NameTable]:
    source = "name_tables.toml"
    data = parse_toml((resources.files("pellucid.verification") / source).read_text("utf-8"), source)
    return {
        name: NameTable(tuple(_parse_rule(name, theirs, entry, None) for theirs, entry in table.items()))
        for name, table in data.items()
    }


def shipped_tables() -> list[str]:
    """Returns the names of the tables that come with the package."""
    return sorted(_read_shipped())


def read_table(name: str) -> NameTable:
    """Reads a shipped table by its name, or a user's TOML file."""
    shipped = shipped_tables()
    if name in shipped:
        return _read_shipped()[name]
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UsageError(
            f"{name!r} is not a name table: use {', '.join(shipped)}, or a TOML file."
            f"{did_you_mean(name, shipped)}"
        )
    if path.exists() and not path.is_file():
        raise FileError(f"{name!r} is not a file; --names takes {', '.join(shipped)}, or a TOML file.")
    return NameTable(parse_rules(name, read_text(path)), name)


def parse_rules(source: str, text: str) -> tuple[NameRule, ...]:
    """Parses the entries of a table; a mistyped one is a FileError with its line and what would work."""
    try:
        data = parse_toml(text, source)
    except FileError as error:
        raise FileError(f"{error} An entry is a line such as {EXAMPLE}.") from None
    return tuple(
        _parse_rule(source, theirs, entry, _find_line(text, theirs)) for theirs, entry in data.items()
    )


def _find_line(text: str, key: str) -> int | None:
    """Returns the number of the line on which an entry begins, None where its key is spelled differently."""
    pattern = re.compile(rf"""\s*+\[?\s*+(["']?){re.escape(key)}\1\s*[.=\]]""")
    return next((i for i, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)


def _parse_rule(source: str, theirs: str, entry: Any, line: int | None) -> NameRule:
    place = f"{source}{'' if line is None else f', line {line}'}: "
    targets = tuple(_parse_target(part) for part in (entry if isinstance(entry, list) else [entry]))
    if None in targets:
        hint = ""
        if isinstance(entry, dict):
            strange = [key for key in entry if key not in ("name", "axes")]
            hint = f" A name with dots stands in quotes: {EXAMPLE}." if "name" not in entry else ""
            hint = f" It has {strange[0]!r} instead." if strange and not hint else hint
        raise FileError(
            f'{place}"{theirs}" needs one of our names: "…", {{name = "…", axes = "…"}}, or a list of '
            f"these.{hint}"
        )
    known = _LETTER.findall(theirs)
    if twice := [letter for letter in known if known.count(letter) > 1]:
        raise FileError(f'{place}"{theirs}" has {{{twice[0]}}} twice; each letter stands for one part.')
    if strange := [letter for letter in known if not letter.isidentifier()]:
        raise FileError(f'{place}{{{strange[0]}}} in "{theirs}" is not a letter; write {{l}}, for example.')
    for target in targets:
        assert target is not None
        if lost := [letter for letter in _LETTER.findall(target.name) if letter not in known]:
            raise FileError(f'{place}"{target.name}" has {{{lost[0]}}}, and "{theirs}" has not.')
    return NameRule(theirs, tuple(target for target in targets if target), line)


def _parse_target(entry: Any) -> Target | None:
    table = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(table, dict) or not set(table) <= {"name", "axes"} or "name" not in table:
        return None
    if not all(isinstance(text, str) for text in table.values()):
        return None
    return Target(table["name"], table.get("axes"))


# ---- using


def map_names(
    theirs: Mapping[str, RecordedValue], trace: Trace, table: NameTable | None = None
) -> tuple[dict[str, RecordedValue], list[str]]:
    """Returns their arrays under our names and axes, and their names that have no counterpart here."""
    table = table or NameTable()
    found: dict[str, RecordedValue] = {}
    came_from: dict[str, str] = {}
    used: set[NameRule] = set()
    unmatched = []
    for name, entry in theirs.items():
        rule, targets = next(
            ((rule, to) for rule in table.rules if (to := rule.resolve(name)) is not None),
            (None, [Target(name)]),
        )
        if rule:
            used.add(rule)
        if missing := [target.name for target in targets if target.name not in trace.tape]:
            if rule and table.source:
                known = [*trace.tape.values, *trace.tape.aliases]
                raise UsageError(
                    f"{table.place(rule)}{name!r} is mapped to {missing[0]!r}, which is not a value of this "
                    f"run.{did_you_mean(missing[0], known, 3)}"
                )
            unmatched.append(name)
            continue
        for target, value in zip(targets, _split(name, entry.value, targets, trace), strict=True):
            arranged = _arrange(name, value, target, trace)
            if target.name not in found:
                found[target.name], came_from[target.name] = RecordedValue(arranged, entry.type), name
            elif not np.array_equal(found[target.name].value, arranged, equal_nan=True):
                raise UsageError(
                    f"{came_from[target.name]!r} and {name!r} are both mapped to {target.name!r}, and "
                    "differ. Omit one of them."
                )
    if table.source:
        _check_all_used(table, used, theirs, trace)
    if all(trace.tape.roles[trace.tape.resolve(name)] == "leaf" for name in found):  # ids alone say nothing
        raise UsageError(
            f"none of their names is a value of this run: {_list_some(unmatched)}; ours are "
            f"{_list_some(list(trace.tape.steps))}. " + _suggest_table(theirs)
        )
    return found, unmatched


def _check_all_used(table: NameTable, used: set[NameRule], theirs: Iterable[str], trace: Trace) -> None:
    """Refuses a user's table with an entry that matches nothing: its author believes that it is judged."""
    if not (idle := [rule for rule in table.rules if rule not in used]):
        return
    patterns = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "{l}", name) for name in theirs)
    lines = []
    for rule in idle:
        near = did_you_mean(rule.theirs, [name for name in patterns if name != rule.theirs])
        lines.append(f'{table.place(rule)}"{rule.theirs}" matches no array in their file.{near}')
    raise UsageError(
        "\n".join([*lines[:5], *([f"… and {len(lines) - 5} more entries"] if lines[5:] else [])])
    )


def _suggest_table(theirs: Iterable[str]) -> str:
    """Returns a hint: the shipped table that has most of these names, or how to write one."""
    names = list(theirs)
    known = {
        table: sum(any(rule.resolve(name) for rule in read_table(table).rules) for name in names)
        for table in shipped_tables()
    }
    best = max(known, key=lambda table: known[table])
    if known[best]:
        return f"{known[best]} of them are names of the table {best}: give --names {best}."
    return f"Give --names map.toml with lines such as {EXAMPLE}, or --names {', '.join(known)}."


def _list_some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _split(name: str, value: Array, targets: Sequence[Target], trace: Trace) -> list[Array]:
    """Returns the parts of an array that holds several of our values concatenated along its last axis."""
    if len(targets) < 2:
        return [value] * len(targets)
    widths = [_width(target, trace) for target in targets]
    if not value.ndim or value.shape[-1] != sum(widths):
        names, sizes = " | ".join(target.name for target in targets), " + ".join(map(str, widths))
        raise UsageError(
            f"{name!r} has the shape {value.shape}, and {names} side by side have {sizes} = {sum(widths)} "
            "channels here."
        )
    return np.split(value, np.cumsum(widths)[:-1], axis=-1)


def _width(target: Target, trace: Trace) -> int:
    """Returns the length of the last of their axes for one value."""
    shape, letters = trace.value(target.name).shape, trace.about(target.name).axes
    if target.axes is None:
        return shape[-1] if shape else 1
    sizes = dict(zip(letters, shape, strict=True))
    groups = _parse_axes(target.axes)
    return math.prod(sizes.get(letter, 1) for letter in groups[-1]) if groups else 1


def _parse_axes(axes: str) -> list[list[str]]:
    """Returns the letters of each axis: "b t (h d)" is [[b] [t] [h d]]."""
    return [re.findall(r"\w+", group) for group in re.findall(r"\([\w\s]+\)|\w+", axes)]


def _arrange(name: str, value: Array, target: Target, trace: Trace) -> Array:
    """Returns their array with our axes in our order; an axis of length 1 may be omitted."""
    called, axes = target.name, target.axes
    shape, letters = trace.value(called).shape, trace.about(called).axes
    sizes = dict(zip(letters, shape, strict=True))
    groups = [[letter] for letter in letters] if axes is None else _parse_axes(axes)
    flat = [letter for group in groups for letter in group]
    here = f"{called} [{' '.join(letters)}] has {shape} here"
    if len(set(flat)) < len(flat) or not set(flat) <= set(letters):
        raise UsageError(f"axes {axes!r} of {name!r} must be letters of {called}: {' '.join(letters)}.")
    if lost := [letter for letter in letters if letter not in flat and sizes[letter] > 1]:
        raise UsageError(f"axes {axes!r} of {name!r} omit {' '.join(lost)}, and {here}.")
    if _long_axes(value.shape) != _long_axes(_axis_lengths(groups, sizes)):
        raise UsageError(
            f"{name!r} has the shape {value.shape}, and {here}"
            f"{_explain_shape(name, value, target, groups, sizes)}"
        )
    order = [flat.index(letter) for letter in letters if letter in flat]
    return value.reshape([sizes[letter] for letter in flat]).transpose(order).reshape(shape)


def _axis_lengths(groups: list[list[str]], sizes: Mapping[str, int]) -> Shape:
    return tuple(math.prod(sizes[letter] for letter in group) for group in groups)


def _long_axes(shape: Shape) -> Shape:
    return tuple(n for n in shape if n > 1)


def _explain_shape(
    name: str, value: Array, target: Target, groups: list[list[str]], sizes: Mapping[str, int]
) -> str:
    """Returns why a shape is not ours: another number of tokens, another value, or axes in another order."""
    places = [letter for letter in sizes if letter in "ts"]
    for tokens in {*value.shape, 1} if places else ():
        if _long_axes(_axis_lengths(groups, {**sizes, **dict.fromkeys(places, tokens)})) == _long_axes(
            value.shape
        ):
            ask = "was only the last position computed?" if tokens == 1 else "another prompt, or a bos?"
            return f": {tokens} token{'s' * (tokens != 1)} there, {sizes[places[-1]]} here: {ask}"
    if value.size != math.prod(sizes.values()):
        return (
            f": {value.size:,} numbers there, {math.prod(sizes.values()):,} here. It is another value, or it "
            "comes from a model of another size."
        )
    axes = _find_axes(value.shape, sizes)
    if target.axes is not None and not axes:
        return f": not the axes {target.axes!r}."
    theirs, ours = _name_every_layer(name, target.name)
    return f'; say its axes in --names: "{theirs}" = {{name = "{ours}", axes = "{axes or "…"}"}}.'


def _find_axes(shape: Shape, sizes: Mapping[str, int]) -> str | None:
    """Returns the one reading of their shape as our axes in some order, with neighbors joined in our order;
    None where there are several, or none. An axis of length 1 takes a letter of that length if there is one.

    >>> _find_axes((1, 13, 64), {"b": 1, "h": 4, "t": 13, "d": 16})
    'b t (h d)'
    >>> _find_axes((4, 4, 16), {"b": 1, "h": 4, "t": 4, "d": 16}) is None
    True
    """
    long = [letter for letter in sizes if sizes[letter] > 1]
    readings = {
        tuple(groups)
        for order in itertools.permutations(long)
        for groups in _join_neighbors(order, long)
        if _axis_lengths([[*group] for group in groups], sizes) == _long_axes(shape)
    }
    if len(readings) != 1:
        return None
    groups, short = iter(readings.pop()), iter([letter for letter in sizes if sizes[letter] == 1])
    axes = [next(short, "") if n == 1 else " ".join(next(groups)) for n in shape]
    return " ".join(f"({group})" if " " in group else group for group in axes if group)


def _join_neighbors(order: Sequence[str], ours: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Yields each way to cut letters into groups in which they stand in our order."""
    if not order:
        yield []
    for end in range(1, len(order) + 1):
        if [*order[:end]] == sorted(order[:end], key=ours.index):
            for rest in _join_neighbors(order[end:], ours):
                yield [tuple(order[:end]), *rest]


def _name_every_layer(theirs: str, ours: str) -> tuple[str, str]:
    """Returns both names with {l} for the layer, where both have its number."""
    layer = re.search(r"(?<=blocks\.)\d+(?=\.)", ours)
    pattern = rf"(?<![^.]){layer[0]}(?![^.])" if layer else ""
    if not layer or len(re.findall(pattern, theirs)) != 1:
        return theirs, ours
    return re.sub(pattern, "{l}", theirs), ours.replace(f"blocks.{layer[0]}.", "blocks.{l}.", 1)
