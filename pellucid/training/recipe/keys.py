"""Every key of a recipe: what it means, its type, its default and an example.

All four are read from where the key is defined. Under each field stands what it means, the first sentence by
itself enough for a comment, and in the last line an example:

    batch_size: int = 32
    \"""Rows of one optimizer step, on all processes together.
    Example: 64\"""
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any

from pellucid.config import ModelConfig
from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.generation.settings.table import SETTINGS
from pellucid.parts import Part, find, kinds
from pellucid.training.recipe import Recipe, as_text
from pellucid.training.recipe.reading import FROM_DATA
from pellucid.training.recipe.sections import BOUNDS, CHOICES, OTHER_SAMPLE_SETTINGS, SAMPLE_SETTINGS
from pellucid.training.recipe.toml import format_toml

COLUMN = 32
"""Where comments begin in a recipe that has them."""
KIND = "Which of the {0}; `pellucid choices {0}` explains them"


@dataclass(frozen=True)
class Key:
    """One key as a page shows it; a key without a default is required."""

    name: str
    type: str
    default: str
    meaning: str
    example: str

    @property
    def summary(self) -> str:
        """The first sentence of the meaning, without its full stop."""
        return self.meaning.partition(". ")[0].rstrip(".")


def keys() -> dict[str, list[Key]]:
    """Returns all keys by their table; "" holds those above every table."""
    tables: dict[str, list[Key]] = {"": []}
    for entry in dataclasses.fields(Recipe):
        kind: Any = entry.type
        if entry.name == "model":
            tables["model"] = [key for key in _keys(ModelConfig, "model.") if key.name[6:] not in FROM_DATA]
        elif isinstance(kind, type) and issubclass(kind, Part):
            tables[entry.name] = _part_keys(kind.family, f"{entry.name}.")
        elif dataclasses.is_dataclass(kind):
            tables[entry.name] = list(_keys(kind, f"{entry.name}."))
    tables["evaluation.sampling"] = list(_sampling_keys("evaluation.sampling."))
    tables[""] = list(_keys(Recipe, "", omit=tables))
    return tables


def _keys(kind: Any, table: str, omit: Container[str] = ()) -> Iterator[Key]:
    for entry in dataclasses.fields(kind):
        if entry.name in omit:
            continue
        meaning, example = texts(kind).get(entry.name, ("", ""))
        yield Key(table + entry.name, _type(table + entry.name, entry), _default(entry), meaning, example)


def _part_keys(family: str, table: str) -> list[Key]:
    """Returns the settings of all kinds of a family, each with its defaults."""
    found: dict[str, Key] = {}
    for kind in kinds(family):
        for key in _keys(find(family, kind), table):
            default = f"{kind} {key.default}"
            if key.name in found:
                default = f"{found[key.name].default}, {default}"
            found[key.name] = dataclasses.replace(found.get(key.name, key), default=default)
    usual = next(entry for entry in dataclasses.fields(Recipe) if f"{entry.name}." == table).default_factory
    assert usual is not dataclasses.MISSING
    first = Key(
        f"{table}kind",
        f"one of {', '.join(kinds(family))}",
        usual().kind,
        f"{KIND.format(family)}.",
        kinds(family)[0],
    )
    return [first, *found.values()]


def _sampling_keys(table: str) -> Iterator[Key]:
    for name, setting in SETTINGS.items():
        if name not in OTHER_SAMPLE_SETTINGS:
            default = SAMPLE_SETTINGS.get(name, setting.to_plain(DEFAULTS[name]))
            yield Key(
                table + name,
                setting.type_text,
                "none" if default is None else format_toml(default),
                setting.meaning,
                format_toml(setting.example),
            )


def _default(entry: Any) -> str:
    if entry.default_factory is not dataclasses.MISSING:
        made = entry.default_factory()
        if isinstance(made, Part):
            return made.kind
        return format_toml(made.to_dict() if isinstance(made, Sampling) else made)
    return "" if entry.default is dataclasses.MISSING else format_toml(entry.default)


def _type(name: str, entry: Any) -> str:
    table, _, key = name.rpartition(".")
    for its_table, its_key, words in CHOICES:
        if (its_table, its_key) == (table, key):
            return f"one of {', '.join(map(as_text, words))}"
    if isinstance(entry.type, type) and issubclass(entry.type, Part):
        return f"one of {', '.join(kinds(entry.type.family))}"
    found = _type_name(entry.type)
    for its_table, its_key, low, high in BOUNDS:
        if (its_table, its_key) == (table, key):
            found += f", {low:,g} or more" if high >= 2**24 else f", {low:g} to {high:,.10g}"
    return found


def _type_name(kind: Any) -> str:
    """
    >>> _type_name(str | tuple[str, ...])
    'text or list of texts'
    """
    if isinstance(kind, UnionType):
        return " or ".join(map(_type_name, kind.__args__))
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    lists = {
        tuple[str, ...]: "list of texts",
        tuple[float, ...]: "list of numbers",
        Mapping[str, float]: "table of numbers",
        Sampling: "table",
        tuple[tuple[int, int], ...]: "list of pairs of integers",
    }
    return names.get(kind) or lists.get(kind) or str(kind)


@cache
def texts(kind: type) -> dict[str, tuple[str, str]]:
    """Returns the meaning and the example under each field of a dataclass, those of its bases among them.

    >>> texts(Recipe)["seed"][1]
    '17'
    """
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _texts(base)
    return found


def _texts(kind: type) -> Iterator[tuple[str, tuple[str, str]]]:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:  # installed without sources: there are no texts, and nothing else is lost
        return
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                meaning, _, example = inspect.cleandoc(said).partition("\nExample: ")
                yield name, (" ".join(meaning.split()), example)


def add_comments(recipe: Recipe) -> str:
    """Returns the recipe as TOML with what each key means beside it."""
    lines = []
    table: Any = Recipe
    for line in recipe.to_toml().splitlines():
        if line.startswith("["):
            value = getattr(recipe, line[1:-1])
            table = ModelConfig if line == "[model]" else type(value)
        key = line.partition(" = ")[0]
        summary = KIND.format(table.family) if key == "kind" else _summary(table, key)
        lines.append(f"{line:<{COLUMN}}  # {summary}" if summary else line)
    return "\n".join(lines) + "\n"


def _summary(table: type, key: str) -> str:
    meaning, example = texts(table).get(key, ("", ""))
    return Key(key, "", "", meaning, example).summary
