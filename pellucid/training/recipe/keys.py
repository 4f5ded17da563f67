"""Every key of a recipe, collected from where it is defined: its meaning, type, default and an example.

No key is defined here. Under each field stands what it means, the first sentence by itself enough for a
comment, and in the last line an example:

    batch_size: int = 32
    \"""Rows of one optimizer step, on all processes together.
    Example: 64\"""
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pellucid.base.schema import Field, describe, fields_of
from pellucid.config import ModelConfig
from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.generation.settings.table import SETTINGS
from pellucid.parts import Part, find, kinds
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.sections import FROM_DATA, OTHER_SAMPLE_SETTINGS, SAMPLE_SETTINGS
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
    for field in fields_of(kind):
        if field.name not in omit:
            meaning, example = texts(kind).get(field.name, ("", ""))
            yield Key(table + field.name, _type(field), _default(field), meaning, example)


def _part_keys(family: str, table: str) -> list[Key]:
    """Returns the settings of all kinds of a family, each with its defaults."""
    found: dict[str, Key] = {}
    for kind in kinds(family):
        for key in _keys(find(family, kind), table):
            default = f"{kind} {key.default}"
            if key.name in found:
                default = f"{found[key.name].default}, {default}"
            found[key.name] = dataclasses.replace(found.get(key.name, key), default=default)
    (usual,) = (field.default for field in fields_of(Recipe) if f"{field.name}." == table)
    first = Key(
        f"{table}kind",
        f"one of {', '.join(kinds(family))}",
        usual.kind,
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
                _type(setting),
                "none" if default is None else format_toml(default),
                setting.meaning,
                format_toml(setting.example),
            )


def _default(field: Field) -> str:
    if field.is_required:
        return ""
    if isinstance(field.default, Part):
        return field.default.kind
    plain = field.default.to_dict() if isinstance(field.default, Sampling) else field.default
    return format_toml(plain)


def _type(field: Field) -> str:
    if isinstance(field.type, type) and issubclass(field.type, Part):
        return f"one of {', '.join(kinds(field.type.family))}"
    if isinstance(field.default, Sampling):
        return "table"
    return describe(field).removeprefix("a ")


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
