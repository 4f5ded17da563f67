"""A run in its folder: begun or gone on with, logged line by line, saved whole, and able to go on.

Of several ranks, the first one writes recipe and log and makes of the text what has to be made; all of them
train, judge and save.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import torch

from pellucid import __version__
from pellucid.errors import AskedWrongly, PellucidError
from pellucid.training import checkpoint
from pellucid.training.environment import differences, environment
from pellucid.training.events import Event, Saved
from pellucid.training.log import Log, cut
from pellucid.training.loop import Trainer
from pellucid.training.ranks import ALONE, Ranks
from pellucid.training.recipe import Recipe, changed
from pellucid.training.run_folder import RECIPE, RunFolder
from pellucid.training.source import forget, open_source

Tell = Callable[[str], None]
MAY_CHANGE = ("train.parallel", "train.timeout")
"""Keys with another value of which a run is still the same run."""


class Run:
    """Use it inside `held()`, so that no other process trains in the same folder."""

    def __init__(self, recipe: Recipe, folder: RunFolder, tell: Tell, ranks: Ranks = ALONE) -> None:
        self.recipe, self.folder, self.ranks = recipe, folder, ranks
        with ranks.first_goes_first():
            _see(folder, ranks)
            source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / "data", tell)
        self.trainer = Trainer(recipe, source, ranks)
        self.log = Log(folder.path / "log.jsonl") if ranks.first else None

    def events(self) -> Iterator[Event]:
        """Everything that happens, kept in the log as it does."""
        with self.ranks.hearing():
            for event in self.trainer.run(self.save):
                if self.log is not None:
                    self.log.write(event)
                yield event

    def save(self) -> Saved:
        begun = time.perf_counter()
        if self.log is not None:
            self.log.settle()  # so that no power cut leaves the log behind the checkpoint
        keep = self.recipe.checkpoint.keep
        made = self.folder.save(self.trainer.snapshot(), self.environment(), keep, self.ranks)
        return Saved(self.trainer.at, str(made), time.perf_counter() - begun)

    def environment(self) -> dict[str, object]:
        trainer = self.trainer
        return environment(trainer.compiled, trainer.device, self.ranks.world, self.recipe.train.parallel)


def begin(recipe: Recipe, folder: RunFolder, tell: Tell, ranks: Ranks = ALONE) -> Run:
    """A new run, whose recipe is written before anything else; a text that is refused leaves none behind."""
    compare(recipe, ranks)
    ranks.first_alone(lambda: folder.begin(recipe.to_toml()))
    try:
        return Run(recipe, folder, tell, ranks)
    except PellucidError:
        if ranks.first:
            forget(folder.path / "data")
            (folder.path / RECIPE).unlink(missing_ok=True)
        raise


def resume(folder: RunFolder, tell: Tell, ranks: Ranks = ALONE, changes: Iterable[str] = ()) -> Run:
    """Go on from the newest complete checkpoint, or from the start where there is none yet."""
    recipe = Recipe.from_dict(changed(folder.recipe(), _allowed(changes)))
    compare(recipe, ranks)
    name, skipped = ranks.first_alone(lambda: _newest(folder))
    for line in skipped:
        tell(line)
    run = Run(recipe, folder, tell, ranks)
    step = 0
    if name:
        found = folder.checkpoints / name
        run.trainer.restore(checkpoint.read_checked(found, ranks))
        step = run.trainer.at
        for line in differences(checkpoint.environment_of(found), run.environment()):
            tell(f"{line}: the result will no longer be bitwise that of an uninterrupted run")
    if run.log is not None:
        cut(run.log.path, step)
    tell(f"going on from step {step:,} of {recipe.steps:,}")
    return run


def compare(recipe: Recipe, ranks: Ranks) -> None:
    """All ranks have the same recipe, and programs that mean the same by it."""
    ranks.compare({"pellucid": __version__, "torch": torch.__version__} | recipe.to_dict())


def _newest(folder: RunFolder) -> tuple[str, list[str]]:
    found, skipped = folder.newest()
    return ("" if found is None else found.name), skipped


def _allowed(changes: Iterable[str]) -> list[str]:
    for change in changes:
        if change.partition("=")[0] not in MAY_CHANGE:
            raise AskedWrongly(
                f"{change!r}: a run goes on as it began, but for {' and '.join(MAY_CHANGE)}; for another "
                "recipe begin another run."
            )
    return list(changes)


def _see(folder: RunFolder, ranks: Ranks) -> None:
    with contextlib.suppress(OSError):
        if (folder.path / RECIPE).is_file():
            return
    raise AskedWrongly(
        f"rank {ranks.rank} does not see {folder.path.absolute()}, where the first one writes: let out be a "
        "folder that all machines share."
    )
