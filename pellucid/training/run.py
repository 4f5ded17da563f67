"""A run in its folder: begun or gone on with, logged line by line, saved whole, and able to go on."""

import time
from collections.abc import Callable, Iterator

from pellucid.errors import PellucidError
from pellucid.interop.pretrained import Pretrained
from pellucid.training import checkpoint
from pellucid.training.environment import differences, environment
from pellucid.training.events import Event, Saved
from pellucid.training.log import Log, cut
from pellucid.training.loop import Trainer
from pellucid.training.recipe import Recipe
from pellucid.training.run_folder import RECIPE, RunFolder
from pellucid.training.source import forget, open_source
from pellucid.training.start import about, again, settled

Tell = Callable[[str], None]


class Run:
    """Use it inside `held()`, so that no other process trains in the same folder."""

    def __init__(self, recipe: Recipe, folder: RunFolder, tell: Tell, start: Pretrained | None) -> None:
        self.recipe, self.folder = recipe, folder
        source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / "data", tell, start)
        self.trainer = Trainer(recipe, source, start=start)
        for line in about(recipe, self.trainer.model):
            tell(line)
        self.log = Log(folder.path / "log.jsonl")

    def events(self) -> Iterator[Event]:
        """Everything that happens, kept in the log as it does."""
        for event in self.trainer.run(self.save):
            self.log.write(event)
            yield event

    def save(self) -> Saved:
        begun = time.perf_counter()
        self.log.settle()  # so that no power cut leaves the log behind the checkpoint
        made = self.folder.save(
            self.trainer.snapshot(),
            environment(self.trainer.compiled, self.trainer.device),
            self.recipe.checkpoint.keep,
        )
        return Saved(self.trainer.at, str(made), time.perf_counter() - begun)


def begin(recipe: Recipe, folder: RunFolder, tell: Tell) -> Run:
    """A new run, whose recipe is written before anything else; a text that is refused leaves none behind."""
    recipe, start = settled(recipe)
    folder.begin(recipe.to_toml())
    try:
        return Run(recipe, folder, tell, start)
    except PellucidError:
        forget(folder.path / "data")
        (folder.path / RECIPE).unlink(missing_ok=True)
        raise


def resume(folder: RunFolder, tell: Tell) -> Run:
    """Go on from the newest complete checkpoint, or from the start where there is none yet."""
    recipe = Recipe.from_dict(folder.recipe())
    found, skipped = folder.newest()
    for line in skipped:
        tell(line)
    run = Run(recipe, folder, tell, again(recipe, found))
    step = 0
    if found is not None:
        snapshot = checkpoint.read(found)
        run.trainer.restore(snapshot)
        step = run.trainer.at
        for line in differences(
            checkpoint.environment_of(found), environment(run.trainer.compiled, run.trainer.device)
        ):
            tell(f"{line}: the result will no longer be bitwise that of an uninterrupted run")
    cut(run.log.path, step)
    tell(f"going on from step {step:,} of {recipe.steps:,}")
    return run
