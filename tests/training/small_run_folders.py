"""Whole runs in their folders, of a few steps and in float64, for those that ask a run about its past."""

from collections.abc import Callable
from pathlib import Path

from pellucid.training.events import Event
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.resume import begin, resume
from pellucid.training.run import Run
from pellucid.training.saving.run_folder import RunFolder

TABLE = {
    "out": "",
    "steps": 6,
    "data": {"path": "task:copy", "batch_size": 4},
    "model": {"context_length": 18, "n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 10},
    "optimizer": {"kind": "adamw", "lr": 0.01},
    "schedule": {"kind": "cosine", "warmup": 2},
    "train": {"dtype": "float64", "compile": False, "clip": 0.1},
    "evaluation": {"every": 2, "batches": 1, "sample": 2},
    "checkpoint": {"every": 4, "keep": 9},
}


def recipe(path: Path, *changes: str) -> Recipe:
    return Recipe.from_dict(override(TABLE | {"out": str(path)}, changes))


def trained(path: Path, *changes: str) -> list[Event]:
    """Train to the end, or to where the run stops; everything that happened."""
    folder = RunFolder(path)
    with folder.lock():
        run = begin(recipe(path, *changes), folder, lambda _: None)
        return list(run.events())


def train(recipe: Recipe, stop: int = 0) -> Run:
    """Trains in the recipe's folder to the end, or is interrupted after a step."""
    folder = RunFolder(recipe.out)
    with folder.lock():
        return _follow(begin(recipe, folder, lambda _: None), stop)


def go_on(path: Path, *changes: str, stop: int = 0, report: Callable[[str], None] = lambda line: None) -> Run:
    """The same of a run that is resumed from its newest checkpoint."""
    folder = RunFolder(path)
    with folder.lock():
        return _follow(resume(folder, report, changes=changes), stop)


def _follow(run: Run, stop: int) -> Run:
    for event in run.events():
        if stop and event.step == stop:
            run.request_stop()
    return run
