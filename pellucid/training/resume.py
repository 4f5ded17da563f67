"""Begins a run in a new folder, or resumes one from its newest checkpoint.

Of several ranks, the first one writes the recipe and prepares the text, and the others wait for it.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pellucid import __version__
from pellucid.base.errors import UsageError
from pellucid.data.sources.source import open_source
from pellucid.formats.checkpoint_manifest import MODEL, parse_step
from pellucid.formats.pretrained import Pretrained
from pellucid.training import memory
from pellucid.training.device import describe_determinism_cost, resolve_device
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks, flatten
from pellucid.training.evaluate import check_evaluation
from pellucid.training.history.log import cut, writer_class
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.run import Run
from pellucid.training.saving import checkpoint
from pellucid.training.saving.environment import compare_environments
from pellucid.training.saving.run_folder import DATA, RECIPE, RunFolder
from pellucid.training.start import (
    base_model_for_resume,
    make_config,
    resolve_recipe,
    summary,
    warn_of_visible_targets,
)
from pellucid.training.state import TrainState

Report = Callable[[str], None]
"""Receives lines for the user."""
MAY_CHANGE = ("train.parallel", "train.timeout")
"""Keys that may change when a run is resumed."""
NO_BITS = ("out", "minutes", *MAY_CHANGE)
"""Keys that decide no bit of a step: what the clock decided is in `extensions`."""
STEPS, EXTENSIONS = "steps", "extensions"
"""The key that `resume` may change, and the one that keeps its earlier values."""


def begin(recipe: Recipe, folder: RunFolder, report: Report, ranks: Ranks = SINGLE_PROCESS) -> Run:
    """Begins a run in a new folder. Its recipe is written first; where the run is refused, nothing stays."""
    recipe, base = resolve_recipe(recipe)
    check_same_recipe(recipe, ranks)
    ranks.on_main_then_broadcast(lambda: folder.begin(recipe.to_toml()))
    try:
        return _open_run(recipe, folder, report, base, ranks)
    except Exception:
        if ranks.is_main:
            folder.abandon()
        raise


def _open_run(
    recipe: Recipe, folder: RunFolder, report: Report, base: Pretrained | None, ranks: Ranks
) -> Run:
    """Checks what can be checked, opens the data, and builds the state before the first step."""
    device = resolve_device(recipe.train.device)  # a missing one is refused before the text is read
    config = make_config(recipe, base) if base else recipe.config(recipe.data.vocab_size or 1)
    memory.check_fits(recipe, config, str(device), ranks.world)
    if recipe.train.tensorboard and ranks.is_main:
        writer_class()  # refused now where it is not installed
    with ranks.main_process_first():
        _check_shared(folder, ranks)
        source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / DATA, report, base)
    recipe, unresolved = recipe.resolve_steps(source.train), recipe
    if recipe != unresolved:
        ranks.on_main_then_broadcast(lambda: folder.write_recipe(recipe.to_toml()))
    check_evaluation(source, recipe)
    with memory.explain_out_of_memory(recipe, recipe.train.device, lambda: 0, ranks.world):
        state = TrainState(recipe, source, base, ranks)
        if state.is_deterministic and state.device.type == "cuda" and ranks.is_single_process:
            rows = recipe.data.batch_size // recipe.train.accumulate
            report(describe_determinism_cost(state.objective, rows, recipe.length))
    warning = warn_of_visible_targets(state.model.config, recipe.length)
    for line in filter(None, (*summary(recipe, state.model), warning)):
        report(line)
    return Run(state, folder)


def resume(
    folder: RunFolder, report: Report, ranks: Ranks = SINGLE_PROCESS, changes: Iterable[str] = ()
) -> Run:
    """Resumes a run from its newest complete checkpoint, or from the start where there is none.

    `changes` may set steps=N, to train further than the run was planned.
    """
    changes = _check_changes(changes)
    own = Recipe.from_dict(folder.read_recipe())
    check_same_recipe(Recipe.from_dict(override(folder.read_recipe(), _without_steps(changes))), ranks)
    ranks.check_equal({STEPS: _steps(folder, changes)})
    ranks.on_main_then_broadcast(folder.check_models)
    name, skipped = ranks.on_main_then_broadcast(lambda: _newest(folder))
    for line in skipped:
        report(line)
    path, step = (folder.checkpoints / name, parse_step(name) or 0) if name else (None, 0)
    extended, recipe = _recipe_from(folder, path, changes)
    run = _open_run(recipe, folder, report, base_model_for_resume(recipe, path), ranks)
    if path is not None:
        run.state.restore(checkpoint.read_checked(path, ranks))
        for line in compare_environments(checkpoint.read_environment(path), run.environment()):
            report(f"{line}: the result will no longer be bitwise that of an uninterrupted run")
    if extended != own:
        run.state.meters.evaluations_without_improvement = 0  # patience begins anew
        ranks.on_main_then_broadcast(lambda: folder.write_recipe(extended.to_toml()))
        report(_describe_extension(own, extended, step))
    for log in run.logs.values():
        cut(log.path, step)
    report(f"resuming from step {step:,} of {run.recipe.steps:,}")
    return run


def recipe_to_resume(folder: RunFolder, changes: Iterable[str]) -> Recipe:
    """Returns the recipe with which `resume` would train, or refuses as it would; nothing is written."""
    return _recipe_from(folder, folder.find_newest()[0], _check_changes(changes))[1]


def _recipe_from(folder: RunFolder, found: Path | None, changes: Iterable[str]) -> tuple[Recipe, Recipe]:
    """Returns the recipe with the new number of steps, as the folder keeps it, and with all changes, as it is
    trained with from the checkpoint on."""
    own, step = Recipe.from_dict(folder.read_recipe()), (parse_step(found.name) or 0) if found else 0
    if found is not None:
        _check_unchanged(own, checkpoint.read_recipe(found), step, folder)
    steps = _steps(folder, changes)
    extended = own if steps == own.steps else _extend(own, step, steps, folder)
    return extended, Recipe.from_dict(override(extended.to_dict(), _without_steps(changes)))


def _steps(folder: RunFolder, changes: Iterable[str]) -> int:
    """Returns how many steps the run has after the changes."""
    return Recipe.from_dict(override({**folder.read_recipe(), EXTENSIONS: []}, changes)).steps


def _extend(recipe: Recipe, step: int, steps: int, folder: RunFolder) -> Recipe:
    if recipe.data.epochs:
        raise UsageError(
            f"{folder.path} has data.epochs={recipe.data.epochs}, which decides its steps: omit "
            f"steps={steps}, or begin another run with start={folder.path / MODEL}."
        )
    if steps <= step:
        raise UsageError(
            f"{folder.path} has made {step:,} steps already, and steps={steps} is not more than that: give a "
            "larger number, or begin another run."
        )
    return replace(recipe.extend(step, steps), minutes=0.0)  # the steps are what counts now


def _describe_extension(before: Recipe, after: Recipe, step: int) -> str:
    rate = after.optimizer.lr * after.schedule.factor(step, after.steps)
    return (
        f"{after.steps:,} steps instead of {before.steps:,}: from here on the learning rate follows the "
        f"{after.schedule.kind} schedule of {after.steps:,} steps, and the next one has {rate:.3g}"
    )


def check_same_recipe(recipe: Recipe, ranks: Ranks) -> None:
    """Refuses ranks that have different recipes, or different versions of this program or of torch."""
    ranks.check_equal({"pellucid": __version__, "torch": torch.__version__} | recipe.to_dict())


def _check_unchanged(recipe: Recipe, saved: Mapping[str, Any], step: int, folder: RunFolder) -> None:
    """Refuses a recipe that was edited since the checkpoint was saved."""
    ours, theirs = flatten(recipe.to_dict()), flatten(Recipe.from_dict(saved).to_dict())
    if step:  # as planned when that step was made
        ours[STEPS] = recipe.steps_at(step - 1)
        ours[EXTENSIONS] = tuple(pair for pair in recipe.extensions if pair[0] < step)
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in NO_BITS and ours.get(key) != theirs.get(key):
            raise UsageError(
                f"{folder.path / RECIPE} was changed: {key} was {theirs.get(key)!r} when the run was saved, "
                f"and is {ours.get(key)!r} now. Restore it, or begin another run."
            )


def is_complete(folder: RunFolder, changes: Iterable[str]) -> bool:
    """Returns whether a finished run has its last checkpoint intact and `changes` ask for no more steps, so
    that nothing is left to train."""
    recipe = Recipe.from_dict(folder.read_recipe())
    found, skipped = folder.find_newest()
    if skipped or _steps(folder, _check_changes(changes)) != recipe.steps:
        return False
    if found is None:
        return True
    saved = checkpoint.read_recipe(found)
    _check_unchanged(recipe, saved, parse_step(found.name) or 0, folder)
    return Recipe.from_dict(saved).steps == recipe.steps  # else killed just after its steps were extended


def _newest(folder: RunFolder) -> tuple[str, list[str]]:
    """Returns the name of the checkpoint to resume from, and why newer ones are skipped.

    Refuses a run that has a model and no checkpoint left: training from step 0 would replace the model.
    """
    found, skipped = folder.find_newest()
    if found is None and (saved := folder.path / MODEL).is_dir():
        why = (
            f"{folder.path} has no complete checkpoint to resume from: training from step 0 would replace "
            f"{saved}. Begin another run, with start={saved} to continue from its weights; or move that "
            "model elsewhere."
        )
        raise UsageError("\n".join([why, *skipped]))
    return ("" if found is None else found.name), skipped


def _check_changes(changes: Iterable[str]) -> list[str]:
    for change in changes:
        if change.partition("=")[0] not in (STEPS, *MAY_CHANGE):
            raise UsageError(
                f"{change!r}: a resumed run may change only {STEPS}, {' and '.join(MAY_CHANGE)}; for another "
                "recipe begin another run."
            )
    return list(changes)


def _without_steps(changes: Iterable[str]) -> list[str]:
    return [change for change in changes if change.partition("=")[0] != STEPS]


def _check_shared(folder: RunFolder, ranks: Ranks) -> None:
    with contextlib.suppress(OSError):
        if (folder.path / RECIPE).is_file():
            return
    raise UsageError(
        f"rank {ranks.rank} does not see {folder.path.absolute()}, where rank 0 writes: set out to a folder "
        "that all machines share."
    )
