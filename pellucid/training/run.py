"""A run in its folder: begun or gone on with, logged line by line, saved whole, and able to go on."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from pellucid.config import ModelConfig
from pellucid.errors import PellucidError
from pellucid.training import checkpoint, determinism, memory
from pellucid.training.environment import differences, environment
from pellucid.training.events import Evaluated, Event, Saved, Stepped
from pellucid.training.log import Log, cut
from pellucid.training.log import line as logged
from pellucid.training.loop import Trainer
from pellucid.training.peak import peak
from pellucid.training.plan import flops_per_token
from pellucid.training.recipe import Recipe
from pellucid.training.run_folder import RECIPE, RunFolder
from pellucid.training.source import forget, open_source
from pellucid.training.tensorboard import Board

Tell = Callable[[str], None]


class Run:
    """Use it inside `held()`, so that no other process trains in the same folder."""

    def __init__(self, recipe: Recipe, folder: RunFolder, tell: Tell) -> None:
        self.recipe, self.folder = recipe, folder
        self.board = Board(folder.path / "tensorboard") if recipe.train.tensorboard == "yes" else None
        source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / "data", tell)
        with memory.enough(recipe, recipe.train.device, lambda: 0):
            self.trainer = Trainer(recipe, source)
            if self.trainer.deterministic and self.trainer.device.type == "cuda":
                rows = recipe.data.batch_size // recipe.train.accumulate
                tell(determinism.price(self.trainer.objective, rows, recipe.length))
        if warning := sees_targets(self.trainer.model.config):
            tell(warning)
        self.log = Log(folder.path / "log.jsonl")

    def events(self) -> Iterator[Event]:
        """Everything that happens, kept in the log as it does."""
        with memory.enough(self.recipe, str(self.trainer.device), lambda: self.trainer.at):
            for event in self.trainer.run(self.save):
                more = self._more(event)
                self.log.write(event, **more)
                if self.board:
                    self.board.write(logged(event, **more))
                yield event
        if self.board:
            self.board.close()

    def _more(self, event: Event) -> dict[str, Any]:
        """What the log has of an event besides: the share of this machine's peak, and the floor, if known."""
        trainer = self.trainer
        if isinstance(event, Stepped):
            work = event.tokens_per_second * flops_per_token(trainer.model.config)
            return {"mfu": work / peak(str(trainer.device), trainer.dtype)}
        known = isinstance(event, Evaluated) and event.gap is not None
        return {"floor": trainer.source.floor} if known else {}

    def save(self) -> Saved:
        begun = time.perf_counter()
        self.log.settle()  # so that no power cut leaves the log behind the checkpoint
        if self.board:
            self.board.settle()
        made = self.folder.save(
            self.trainer.snapshot(),
            environment(self.trainer.compiled, self.trainer.device),
            self.recipe.checkpoint.keep,
        )
        return Saved(self.trainer.at, str(made), time.perf_counter() - begun)


def sees_targets(config: ModelConfig) -> str:
    """A word of warning where a position may look at the token that it is to predict."""
    if not config.mask.together:
        return ""
    seen = config.mask.together - 1  # of so many positions that see each other, all but the last
    where = "" if seen == math.inf else f" in the first {seen:.0f} of a row"
    return (
        f"model.mask={config.mask.kind}: positions see the tokens that they are to predict{where}, so that "
        "the loss there falls to nothing and tells nothing of text; model.mask=causal sees none."
    )


def begin(recipe: Recipe, folder: RunFolder, tell: Tell) -> Run:
    """A new run, whose recipe is written before anything else; a text that is refused leaves none behind."""
    folder.begin(recipe.to_toml())
    try:
        return Run(recipe, folder, tell)
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
    run = Run(recipe, folder, tell)
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
