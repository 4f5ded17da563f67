"""A run in its folder: begun or gone on with, logged line by line, saved whole, and able to go on.

Of several ranks, the first one writes recipe and log and makes of the text what has to be made; all of them
train, judge and save.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from pellucid import __version__
from pellucid.config import ModelConfig
from pellucid.data.sources.source import open_source
from pellucid.errors import UsageError
from pellucid.evaluation import validation
from pellucid.pretrained import Pretrained
from pellucid.training import determinism, memory
from pellucid.training.distributed.ranks import ALONE, Ranks, flat
from pellucid.training.events import Evaluated, Event, Recorded, Saved, Stepped
from pellucid.training.history.log import Log, cut
from pellucid.training.history.log import line as logged
from pellucid.training.history.tensorboard import Board
from pellucid.training.loop import Trainer, device_of
from pellucid.training.peak import measure_peak
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.saving import checkpoint
from pellucid.training.saving.environment import differences, environment
from pellucid.training.saving.manifest import MODEL, step_of
from pellucid.training.saving.run_folder import DATA, LOG, RECIPE, RECORDER, TENSORBOARD, RunFolder
from pellucid.training.start import base_model_for_resume, config_of, resolve_recipe, summary

Tell = Callable[[str], None]
MAY_CHANGE = ("train.parallel", "train.timeout")
"""Keys with another value of which a run is still the same run."""
STEPS, EXTENSIONS = "steps", "extensions"
"""The key that a run can be given another value of, and the one that remembers the earlier ones."""
AT_FIRST, SHARE = 10.0, 0.1
"""Seconds that saving the best model may take in any run, and the share of its time that it may take."""


class Run:
    """Use it inside `held()`, so that no other process trains in the same folder."""

    def __init__(
        self, recipe: Recipe, folder: RunFolder, tell: Tell, start: Pretrained | None, ranks: Ranks = ALONE
    ) -> None:
        self.recipe, self.folder, self.ranks = recipe, folder, ranks
        device = device_of(recipe.train.device)  # a missing one is refused before the text is read
        config = config_of(recipe, start) if start else recipe.config(recipe.data.vocab_size or 1)
        memory.check_fits(recipe, config, str(device), ranks.world)
        wanted = recipe.train.tensorboard and ranks.first
        self.board = Board(folder.path / TENSORBOARD) if wanted else None
        with ranks.first_goes_first():
            _see(folder, ranks)
            source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / DATA, tell, start)
        validation.need(source, recipe)
        with memory.enough(recipe, recipe.train.device, lambda: 0, ranks.world):
            self.trainer = Trainer(recipe, source, start, ranks)
            if self.trainer.deterministic and self.trainer.device.type == "cuda" and ranks.alone:
                rows = recipe.data.batch_size // recipe.train.accumulate
                tell(determinism.price(self.trainer.objective, rows, recipe.length))
        for line in (*summary(recipe, self.trainer.model), sees_targets(self.trainer.model.config)):
            if line:
                tell(line)
        self.logs = {name: Log(folder.path / name) for name in (LOG, RECORDER) if ranks.first}
        """What the first rank writes of what happens, and of what the recorder sees."""
        self._for_best = 0.0
        """Seconds that saving the best model has taken."""

    def events(self) -> Iterator[Event]:
        """Everything that happens, kept in the log as it does."""
        with (
            self.ranks.hearing(),
            memory.enough(self.recipe, str(self.trainer.device), self._at, self.ranks.world),
        ):
            for event in self.trainer.run(self.save):
                self._log(event)
                yield event
                if isinstance(event, Evaluated) and (saved := self._save_best(event)):
                    self._log(saved)
                    yield saved
        if self.board:
            self.board.close()

    def _log(self, event: Event) -> None:
        more = self._more(event)
        if self.logs:
            self.logs[RECORDER if isinstance(event, Recorded) else LOG].write(event, **more)
        if self.board and not isinstance(event, Recorded):
            self.board.write(logged(event, **more))

    def _at(self) -> int:
        return self.trainer.at

    def _more(self, event: Event) -> dict[str, Any]:
        """What the log has of an event besides: the share of this machine's peak, and the floor, if known."""
        trainer = self.trainer
        if isinstance(event, Stepped):
            work = event.tokens_per_second * trainer.work
            return {"mfu": work / (measure_peak(str(trainer.device), trainer.dtype) * self.ranks.world)}
        known = isinstance(event, Evaluated) and event.gap is not None
        return {"floor": trainer.source.floor} if known else {}

    def save(self) -> Saved:
        begun = time.perf_counter()
        for log in self.logs.values():
            log.settle()  # so that no power cut leaves the log behind the checkpoint
        if self.board:
            self.board.settle()
        asked, snapshot = self.recipe.checkpoint, self.trainer.snapshot()
        made = self.folder.save(snapshot, self.environment(), asked.keep, self.ranks, asked.every)
        return Saved(self.trainer.at, str(made), time.perf_counter() - begun)

    def _save_best(self, event: Evaluated) -> Saved | None:
        """Keep the model that was just evaluated, where it is better than the one that is kept.

        On a slow disk some are passed over, so that saving takes a tenth of the time at most; the last
        evaluation of a run is not.
        """
        if not self.recipe.checkpoint.keep_best or not math.isfinite(event.loss):
            return None
        costly = self._for_best > AT_FIRST + SHARE * self.trainer.seconds
        due = not costly or self.recipe.ends_at(event.step)
        if not self.ranks.first_alone(lambda: due and self._is_best(event.loss)):
            return None
        begun = time.perf_counter()
        made = self.folder.save_best(self.trainer.snapshot(), event.loss, self.ranks)
        seconds = time.perf_counter() - begun
        self._for_best += seconds
        return Saved(event.step, str(made), seconds, event.loss)

    def _is_best(self, loss: float) -> bool:
        best = self.folder.best()
        return best is None or best.loss is None or loss < best.loss

    def environment(self) -> dict[str, object]:
        trainer = self.trainer
        return environment(trainer.compiled, trainer.device, self.ranks.world, self.recipe.train.parallel)


def sees_targets(config: ModelConfig) -> str:
    """A word of warning where a position may look at the token that it is to predict."""
    if not config.mask.bidirectional_prefix:
        return ""
    seen = config.mask.bidirectional_prefix - 1  # of so many positions that see each other, all but the last
    where = "" if seen == math.inf else f" in the first {seen:.0f} of a row"
    return (
        f"model.mask={config.mask.kind}: positions see the tokens that they are to predict{where}, so that "
        "the loss there falls to nothing and tells nothing of text; model.mask=causal sees none."
    )


def begin(recipe: Recipe, folder: RunFolder, tell: Tell, ranks: Ranks = ALONE) -> Run:
    """A new run, whose recipe is written before anything else; where it is refused, nothing of it stays."""
    recipe, start = resolve_recipe(recipe)
    compare(recipe, ranks)
    ranks.first_alone(lambda: folder.begin(recipe.to_toml()))
    try:
        return Run(recipe, folder, tell, start, ranks)
    except Exception:
        if ranks.first:
            folder.abandon()
        raise


def resume(folder: RunFolder, tell: Tell, ranks: Ranks = ALONE, changes: Iterable[str] = ()) -> Run:
    """Go on from the newest complete checkpoint, or from the start where none was saved yet; where `changes`
    has steps=…, to that step."""
    changes = _allowed(changes)
    own = Recipe.from_dict(folder.recipe())
    compare(Recipe.from_dict(override(folder.recipe(), _without_steps(changes))), ranks)
    ranks.compare({STEPS: _steps(folder, changes)})
    ranks.first_alone(folder.need_own_models)
    name, skipped = ranks.first_alone(lambda: _newest(folder))
    for line in skipped:
        tell(line)
    found, step = (folder.checkpoints / name, step_of(name) or 0) if name else (None, 0)
    extended, recipe = _continued(folder, found, changes)
    run = Run(recipe, folder, tell, base_model_for_resume(recipe, found), ranks)
    if found is not None:
        run.trainer.restore(checkpoint.read_checked(found, ranks))
        for line in differences(checkpoint.environment_of(found), run.environment()):
            tell(f"{line}: the result will no longer be bitwise that of an uninterrupted run")
    if extended != own:
        run.trainer.without_progress = 0  # patience begins anew
        ranks.first_alone(lambda: folder.change(extended.to_toml()))
        tell(_about_extension(own, extended, step))
    for log in run.logs.values():
        cut(log.path, step)
    tell(f"going on from step {step:,} of {recipe.steps:,}")
    return run


def recipe_to_resume(folder: RunFolder, changes: Iterable[str]) -> Recipe:
    """Returns the recipe with which `resume` would go on, or refuses as it would; nothing is written."""
    return _continued(folder, folder.newest()[0], _allowed(changes))[1]


def _continued(folder: RunFolder, found: Path | None, changes: Iterable[str]) -> tuple[Recipe, Recipe]:
    """Returns the recipe of a run with the steps that it is to have, as its folder keeps it, and with all
    changes, as it is trained from a checkpoint on."""
    own, step = Recipe.from_dict(folder.recipe()), (step_of(found.name) or 0) if found else 0
    if found is not None:
        _need_same(own, checkpoint.recipe_of(found), step, folder)
    steps = _steps(folder, changes)
    extended = own if steps == own.steps else _extended(own, step, steps, folder)
    return extended, Recipe.from_dict(override(extended.to_dict(), _without_steps(changes)))


def _steps(folder: RunFolder, changes: Iterable[str]) -> int:
    """How many steps the run is to have."""
    return Recipe.from_dict(override({**folder.recipe(), EXTENSIONS: []}, changes)).steps


def _extended(recipe: Recipe, step: int, steps: int, folder: RunFolder) -> Recipe:
    if steps <= step:
        raise UsageError(
            f"{folder.path} has made {step:,} steps already, and steps={steps} is not more than that: give a "
            "larger number, or begin another run."
        )
    return recipe.extend(step, steps)


def _about_extension(before: Recipe, after: Recipe, step: int) -> str:
    rate = after.optimizer.lr * after.schedule.factor(step, after.steps)
    return (
        f"{after.steps:,} steps instead of {before.steps:,}: from here on the learning rate follows the "
        f"{after.schedule.kind} schedule of {after.steps:,} steps, and the next one has {rate:.3g}"
    )


def compare(recipe: Recipe, ranks: Ranks) -> None:
    """All ranks have the same recipe, and programs that mean the same by it."""
    ranks.compare({"pellucid": __version__, "torch": torch.__version__} | recipe.to_dict())


def _need_same(recipe: Recipe, saved: Mapping[str, Any], step: int, folder: RunFolder) -> None:
    """Refuses a recipe that was changed since the checkpoint of a step: it is that of another run."""
    ours, theirs = flat(recipe.to_dict()), flat(Recipe.from_dict(saved).to_dict())
    if step:  # what was to be when that step was made
        ours[STEPS] = recipe.steps_at(step - 1)
        ours[EXTENSIONS] = tuple(pair for pair in recipe.extensions if pair[0] < step)
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in ("out", *MAY_CHANGE) and ours.get(key) != theirs.get(key):
            raise UsageError(
                f"{folder.path / RECIPE} was changed: {key} was {theirs.get(key)!r} when the run was saved, "
                f"and is {ours.get(key)!r} now. A run goes on as it began: put it back, or begin another run."
            )


def complete(folder: RunFolder, changes: Iterable[str]) -> bool:
    """Whether a run that is finished has its last checkpoint whole and is not to have more steps, so that
    nothing is left to do."""
    recipe = Recipe.from_dict(folder.recipe())
    found, skipped = folder.newest()
    if skipped or _steps(folder, _allowed(changes)) != recipe.steps:
        return False
    if found is None:
        return True
    saved = checkpoint.recipe_of(found)
    _need_same(recipe, saved, step_of(found.name) or 0, folder)
    return Recipe.from_dict(saved).steps == recipe.steps  # else killed just after it was given more


def _newest(folder: RunFolder) -> tuple[str, list[str]]:
    """Returns the name of the checkpoint to go on from, and why newer ones are not taken.

    A run that has saved a model and has no checkpoint left would begin again at step 0 and replace the model.
    """
    found, skipped = folder.newest()
    if found is None and (saved := folder.path / MODEL).is_dir():
        why = (
            f"{folder.path} has no complete checkpoint to go on from: it would begin again at step 0 and "
            f"replace {saved}. Begin another run, with start={saved} to go on from its weights; or move that "
            "model elsewhere."
        )
        raise UsageError("\n".join([why, *skipped]))
    return ("" if found is None else found.name), skipped


def _allowed(changes: Iterable[str]) -> list[str]:
    for change in changes:
        if change.partition("=")[0] not in (STEPS, *MAY_CHANGE):
            raise UsageError(
                f"{change!r}: a run goes on as it began, but for {STEPS}, {' and '.join(MAY_CHANGE)}; for "
                "another recipe begin another run."
            )
    return list(changes)


def _without_steps(changes: Iterable[str]) -> list[str]:
    return [change for change in changes if change.partition("=")[0] != STEPS]


def _see(folder: RunFolder, ranks: Ranks) -> None:
    with contextlib.suppress(OSError):
        if (folder.path / RECIPE).is_file():
            return
    raise UsageError(
        f"rank {ranks.rank} does not see {folder.path.absolute()}, where the first one writes: let out be a "
        "folder that all machines share."
    )
