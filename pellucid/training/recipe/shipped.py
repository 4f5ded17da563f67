"""The recipes inside the package, and how a name becomes a recipe's table."""

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pellucid.base.errors import ConfigError, did_you_mean
from pellucid.base.files import read_text
from pellucid.base.toml import parse_toml
from pellucid.config import presets
from pellucid.data.sources.generated import GENERATED
from pellucid.training.recipe.overrides import override


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
