"""`pellucid.train`: a recipe's run from Python, and the model that it made."""

import os
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from pellucid.arguments import check_path
from pellucid.errors import UsageError, show
from pellucid.workbench.model import Model
from pellucid.workbench.opening import load


def train(
    recipe: str | Path | Mapping[str, Any],
    *,
    on_event: Callable[[Any], object] | None = None,
    **overrides: Any,
) -> Model:
    """Trains by a recipe and returns the model, which also lies in OUT/model; OUT is a run as of the command.

    `recipe` is the name of a shipped one ("stories"), a .toml file, or a table of keys. Further arguments set
    keys: `steps=100, optimizer={"lr": 1e-3}`. `on_event` is called with each step, evaluation and save. After
    an interrupt `pellucid train --resume OUT` goes on from the last checkpoint.
    """
    from pellucid.training.events import EndReason
    from pellucid.training.recipe import Recipe
    from pellucid.training.recipe.overrides import override
    from pellucid.training.recipe.shipped import is_shipped, read_table
    from pellucid.training.resume import begin
    from pellucid.training.saving.run_folder import RunFolder

    if isinstance(recipe, Mapping):
        table = dict(recipe)
    else:
        name = check_path("recipe", recipe)
        if not is_shipped(name) and Path(name).suffix != ".toml" and os.path.exists(name):
            raise UsageError(
                f"{name} is a text: give a recipe, and the text as data={{'path': {name!r}}}. "
                f"`pellucid train {name} --dry-run` plans one for it."
            )
        table = read_table(name)
    asked = Recipe.from_dict(override(table, _changes(overrides)))
    folder = RunFolder(Path(asked.out))
    with folder.held():
        run = begin(asked, folder, lambda line: None)
        for event in run.events():
            if on_event is not None:
                on_event(event)
    if run.ended and run.end_reason is EndReason.NONFINITE:
        raise UsageError(
            f"{run.ended.message}. The weights before that are in {folder.path}/model; use a smaller "
            "optimizer.lr."
        )
    return load(folder.path / "model")


def _changes(overrides: Mapping[str, Any], section: str = "") -> Iterator[str]:
    """Yields the overrides as the command line writes them: optimizer.lr=0.001."""
    from pellucid.training.recipe.toml import format_toml

    for key, value in overrides.items():
        if isinstance(value, Mapping):
            yield from _changes(value, f"{section}{key}.")
        else:
            yield f"{section}{key}={format_toml(_plain(value, f'{section}{key}'))}"


def _plain(value: Any, key: str) -> Any:
    """Returns a value as TOML has it: paths as text, and the numbers of NumPy as Python's."""
    if isinstance(value, str | bool):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one, key) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise UsageError(f"{key} must be a number, a text or a table, not {show(value)}.")
