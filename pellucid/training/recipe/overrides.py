"""A recipe's table: of a shipped recipe or of a file, with `KEY=VALUE` of the command line put into it."""

import copy
import dataclasses
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

from pellucid.base.errors import ConfigError, did_you_mean, show
from pellucid.base.files import read_text
from pellucid.base.toml import check_numbers, parse_toml
from pellucid.config import presets
from pellucid.data.sources.generated import GENERATED
from pellucid.data.sources.settings import Paths
from pellucid.parts import Part
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.sections import read_preset
from pellucid.training.recipe.toml import parse_value


def recipe_names() -> list[str]:
    """Returns the names of the shipped recipes: the files of `recipes/`."""
    folder = resources.files("pellucid.training") / "recipes"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name[-5:] == ".toml"
    )


def is_shipped(name: str) -> bool:
    return name in recipe_names() or name.partition(":")[0] in GENERATED


def read_table(name: str) -> dict[str, Any]:
    """Returns the table of a shipped recipe, by its name, or of a file.

    A text that is generated during training has the recipe of its kind: `task:copy` is `task` with that text.
    """
    if is_shipped(name):
        kind, colon, _ = name.partition(":")
        shipped = resources.files("pellucid.training") / "recipes" / f"{kind}.toml"
        table = tomllib.loads(shipped.read_text("utf-8"))
        return override(table, [f"data.path={name}", f"out=runs/{name.replace(':', '-')}"] if colon else [])
    if not os.path.lexists(name):
        known, hint = ", ".join(recipe_names()), did_you_mean(name, recipe_names())
        if name in presets():
            hint = f" {name} is the shape of a model: train it on a text, with model={name}."
        raise ConfigError(f"{name!r} is neither a recipe nor a file; recipes are {known}.{hint}")
    return parse_toml(read_text(Path(name)), name, ConfigError)


MODEL = "model"
"""The table that may be the name of a preset instead."""


def override(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Returns a recipe's table with some keys set: `optimizer.lr=3e-4`, `model.positions=learned`.

    A whole model (`model=tiny`) is set first, then kinds; another kind drops the settings of the one before.
    """
    result: dict[str, Any] = copy.deepcopy(dict(table))
    texts = dict(_texts(Recipe))
    preset = result.get(MODEL)
    for text in sorted(overrides, key=_order):
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"{text!r} sets nothing: write KEY=VALUE, such as optimizer.lr=3e-4.")
        *sections, key = path.split(".")
        if isinstance(result.get(MODEL), str):
            result[MODEL] = read_preset(result[MODEL], MODEL)
        at = result
        for section in sections:
            inner = at.setdefault(section, {})
            if isinstance(inner, str):  # a part without settings is only its kind
                inner = at[section] = {"kind": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"{path} cannot be set: {section} is {show(inner)} and has no keys.")
            at = inner
        if key == "kind" and at.get("kind") != value:
            at.clear()
        if path == "steps" and isinstance(result.get("data"), dict):  # the later of the two lengths holds
            result["data"].pop("epochs", None)
        elif path == "data.epochs" and value != "0":
            result.pop("steps", None)
        read = parse_value(value)
        is_listed = texts.get(path) == Paths and isinstance(read, list)
        at[key] = value if path in texts and not isinstance(read, str) and not is_listed else read
        check_numbers(at[key], path, ConfigError)
        preset = at[key] if path == MODEL else preset
    if isinstance(preset, str) and result.get("start"):
        raise ConfigError(
            f"model={preset} is the shape of a new model, and start={result['start']!r} has a shape of its "
            "own: omit one of them."
        )
    return result


def _order(text: str) -> int:
    path = text.partition("=")[0]
    return 0 if path == MODEL else 1 if path.endswith(".kind") else 2


def _texts(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the keys that hold a text, with their types. A text needs no quotes where it looks like a number
    or a date: out=2024."""
    for entry in dataclasses.fields(kind):
        if entry.type in (str, str | None, Paths):
            yield path + entry.name, entry.type
        elif dataclasses.is_dataclass(entry.type) and not issubclass(cast(type, entry.type), Part):
            yield from _texts(entry.type, f"{path}{entry.name}.")
