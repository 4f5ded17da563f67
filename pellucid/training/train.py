"""`pellucid.train`: a run from Python, by texts or by a recipe."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_function, check_path
from pellucid.base.errors import UsageError, show

if TYPE_CHECKING:
    from pellucid.training.events import Event
    from pellucid.training.run import Run


def train(
    recipe: str | Path | Sequence[str | Path] | Mapping[str, Any],
    *,
    minutes: float | None = None,
    on_event: "Callable[[Event], object] | None" = None,
    **overrides: Any,
) -> "Run":
    """Trains as `pellucid train` does and returns the run, ended; `pellucid.load(run)` is its model.

    `recipe` is a text, a list of texts, the name of a shipped recipe ("stories"), a .toml file, or a table of
    keys; for texts, the model and its steps are planned so that the run takes about `minutes` (10 if
    omitted). Further arguments set keys of the recipe; `model="tiny"` is the shape of a preset. `on_event` is
    called with each step, evaluation and save. After an interrupt `pellucid train --resume OUT` continues
    from the last checkpoint.

    >>> import pellucid, tempfile
    >>> size = {"context_length": 18, "n_layer": 1, "n_head": 1, "d_model": 4}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pellucid.train("task:copy", out=f"{folder}/run", steps=1, model=size)
    ...     run.end_reason.value, pellucid.load(run).short_name
    ('finished', 'run')
    """
    from pellucid.training.events import EndReason
    from pellucid.training.recipe import Recipe
    from pellucid.training.recipe.overrides import override
    from pellucid.training.request import make_request
    from pellucid.training.resume import begin
    from pellucid.training.saving.run_folder import RunFolder
    from pellucid.training.start import warn_of_visible_targets

    if on_event is not None:
        check_function("on_event", on_event)
    changes = list(_changes(overrides))
    if isinstance(recipe, Mapping):
        if minutes is not None:
            raise UsageError("minutes plans a run for texts, and this is a recipe: set steps=… instead.")
        resolved = Recipe.from_dict(override(recipe, changes))
    else:
        names = recipe if isinstance(recipe, list | tuple) and recipe else [recipe]
        resolved = make_request([check_path("recipe", name) for name in names], changes, minutes).recipe
    folder = RunFolder(Path(resolved.out))
    with folder.lock():
        run = begin(resolved, folder, lambda line: None)
        if warning := warn_of_visible_targets(run.state.model.config, run.recipe.length):
            warnings.warn(warning.removeprefix("warning: "), stacklevel=2)
        for event in run.events():
            if on_event is not None:
                on_event(event)
    if run.ended and run.end_reason is EndReason.NONFINITE:
        raise UsageError(
            f"{run.ended.message}. The weights before that are in {folder.path}/model; use a smaller "
            "optimizer.lr."
        )
    return run


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
