"""A run in its folder: begun or gone on with, logged line by line, saved whole, and able to go on.

Of several ranks, the first one writes recipe and log and makes of the text what has to be made; all of them
train, judge and save.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from pellucid import __version__
from pellucid.config import ModelConfig
from pellucid.errors import PellucidError, UsageError
from pellucid.interop.pretrained import Pretrained
from pellucid.training import determinism, memory, validation
from pellucid.training.distributed.ranks import ALONE, Ranks, flat
from pellucid.training.events import Evaluated, Event, Recorded, Saved, Stepped
from pellucid.training.history.log import Log, cut
from pellucid.training.history.log import line as logged
from pellucid.training.history.tensorboard import Board
from pellucid.training.loop import Trainer, device_of
from pellucid.training.peak import peak
from pellucid.training.recipe import Recipe, changed
from pellucid.training.saving import checkpoint
from pellucid.training.saving.environment import differences, environment
from pellucid.training.saving.run_folder import LOG, RECIPE, RECORDER, RunFolder
from pellucid.training.sources.encoding import forget
from pellucid.training.sources.source import open_source
from pellucid.training.start import about, again, config_of, settled

Tell = Callable[[str], None]
MAY_CHANGE = ("train.parallel", "train.timeout")
"""Keys with another value of which a run is still the same run."""


class Run:
    """Use it inside `held()`, so that no other process trains in the same folder."""

    def __init__(
        self, recipe: Recipe, folder: RunFolder, tell: Tell, start: Pretrained | None, ranks: Ranks = ALONE
    ) -> None:
        self.recipe, self.folder, self.ranks = recipe, folder, ranks
        device = device_of(recipe.train.device)  # one that is not there is told before the text is read
        config = config_of(recipe, start) if start else recipe.config(recipe.data.vocab_size or 1)
        memory.check_fits(recipe, config, str(device), ranks.world)
        wanted = recipe.train.tensorboard == "yes" and ranks.first
        self.board = Board(folder.path / "tensorboard") if wanted else None
        with ranks.first_goes_first():
            _see(folder, ranks)
            source = open_source(recipe.data, recipe.length, recipe.seed, folder.path / "data", tell, start)
        validation.need(source, recipe)
        with memory.enough(recipe, recipe.train.device, lambda: 0, ranks.world):
            self.trainer = Trainer(recipe, source, start, ranks)
            if self.trainer.deterministic and self.trainer.device.type == "cuda" and ranks.alone:
                rows = recipe.data.batch_size // recipe.train.accumulate
                tell(determinism.price(self.trainer.objective, rows, recipe.length))
        for line in (*about(recipe, self.trainer.model), sees_targets(self.trainer.model.config)):
            if line:
                tell(line)
        self.logs = {name: Log(folder.path / name) for name in (LOG, RECORDER) if ranks.first}
        """What the first rank writes of what happens, and of what the recorder sees."""

    def events(self) -> Iterator[Event]:
        """Everything that happens, kept in the log as it does."""
        with (
            self.ranks.hearing(),
            memory.enough(self.recipe, str(self.trainer.device), self._at, self.ranks.world),
        ):
            for event in self.trainer.run(self.save):
                more = self._more(event)
                if self.logs:
                    self.logs[RECORDER if isinstance(event, Recorded) else LOG].write(event, **more)
                if self.board and not isinstance(event, Recorded):
                    self.board.write(logged(event, **more))
                yield event
        if self.board:
            self.board.close()

    def _at(self) -> int:
        return self.trainer.at

    def _more(self, event: Event) -> dict[str, Any]:
        """What the log has of an event besides: the share of this machine's peak, and the floor, if known."""
        trainer = self.trainer
        if isinstance(event, Stepped):
            work = event.tokens_per_second * trainer.work
            return {"mfu": work / (peak(str(trainer.device), trainer.dtype) * self.ranks.world)}
        known = isinstance(event, Evaluated) and event.gap is not None
        return {"floor": trainer.source.floor} if known else {}

    def save(self) -> Saved:
        begun = time.perf_counter()
        for log in self.logs.values():
            log.settle()  # so that no power cut leaves the log behind the checkpoint
        if self.board:
            self.board.settle()
        keep = self.recipe.checkpoint.keep
        made = self.folder.save(self.trainer.snapshot(), self.environment(), keep, self.ranks)
        return Saved(self.trainer.at, str(made), time.perf_counter() - begun)

    def environment(self) -> dict[str, object]:
        trainer = self.trainer
        return environment(trainer.compiled, trainer.device, self.ranks.world, self.recipe.train.parallel)


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


def begin(recipe: Recipe, folder: RunFolder, tell: Tell, ranks: Ranks = ALONE) -> Run:
    """A new run, whose recipe is written before anything else; a text that is refused leaves none behind."""
    recipe, start = settled(recipe)
    compare(recipe, ranks)
    ranks.first_alone(lambda: folder.begin(recipe.to_toml()))
    try:
        return Run(recipe, folder, tell, start, ranks)
    except PellucidError:
        if ranks.first:
            forget(folder.path / "data")
            (folder.path / RECIPE).unlink(missing_ok=True)
        raise


def resume(folder: RunFolder, tell: Tell, ranks: Ranks = ALONE, changes: Iterable[str] = ()) -> Run:
    """Go on from the newest complete checkpoint, or from the start where there is none yet."""
    recipe = Recipe.from_dict(changed(folder.recipe(), _allowed(changes)))
    compare(recipe, ranks)
    folder.need_links(
        "move it away. Each checkpoint has its own; copies that follow links make such folders."
    )
    name, skipped = ranks.first_alone(lambda: _newest(folder))
    for line in skipped:
        tell(line)
    found = folder.checkpoints / name if name else None
    run = Run(recipe, folder, tell, again(recipe, found), ranks)
    step = 0
    if found is not None:
        _need_same(recipe, checkpoint.recipe_of(found), folder)
        run.trainer.restore(checkpoint.read_checked(found, ranks))
        step = run.trainer.at
        for line in differences(checkpoint.environment_of(found), run.environment()):
            tell(f"{line}: the result will no longer be bitwise that of an uninterrupted run")
    for log in run.logs.values():
        cut(log.path, step)
    tell(f"going on from step {step:,} of {recipe.steps:,}")
    return run


def compare(recipe: Recipe, ranks: Ranks) -> None:
    """All ranks have the same recipe, and programs that mean the same by it."""
    ranks.compare({"pellucid": __version__, "torch": torch.__version__} | recipe.to_dict())


def _need_same(recipe: Recipe, saved: Mapping[str, Any], folder: RunFolder) -> None:
    """A recipe that somebody has changed since is that of another run."""
    ours, theirs = flat(recipe.to_dict()), flat(Recipe.from_dict(saved).to_dict())
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in ("out", *MAY_CHANGE) and ours.get(key) != theirs.get(key):
            raise UsageError(
                f"{folder.path / RECIPE} was changed: {key} was {theirs.get(key)!r} when the run was saved, "
                f"and is {ours.get(key)!r} now. A run goes on as it began: put it back, or begin another run."
            )


def complete(folder: RunFolder, changes: Iterable[str]) -> bool:
    """Whether a run that is finished has its last checkpoint whole, so that nothing is left to do. Somebody
    who wants more of it, by a changed recipe, is told that it ended as it began."""
    _allowed(changes)
    found, skipped = folder.newest()
    if found is not None and not skipped:
        _need_same(Recipe.from_dict(folder.recipe()), checkpoint.recipe_of(found), folder)
    return not skipped


def _newest(folder: RunFolder) -> tuple[str, list[str]]:
    found, skipped = folder.newest()
    return ("" if found is None else found.name), skipped


def _allowed(changes: Iterable[str]) -> list[str]:
    for change in changes:
        if change.partition("=")[0] not in MAY_CHANGE:
            raise UsageError(
                f"{change!r}: a run goes on as it began, but for {' and '.join(MAY_CHANGE)}; for another "
                "recipe begin another run."
            )
    return list(changes)


def _see(folder: RunFolder, ranks: Ranks) -> None:
    with contextlib.suppress(OSError):
        if (folder.path / RECIPE).is_file():
            return
    raise UsageError(
        f"rank {ranks.rank} does not see {folder.path.absolute()}, where the first one writes: let out be a "
        "folder that all machines share."
    )
