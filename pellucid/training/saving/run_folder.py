"""The folder of a run: its recipe first, then its log and checkpoints; one process at a time writes there.

OUT/recipe.toml      the complete recipe
OUT/log.jsonl        the events
OUT/recorder.jsonl   the sizes of activations, gradients and updates
OUT/checkpoints/     step-0000500, step-0001000, …
OUT/model/           the model of the newest checkpoint
OUT/adapter/         its adapter, where the run has one
OUT/best/            the model with the lowest validation loss so far
OUT/data/            the encoded text
OUT/lock             locked while a process writes here
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.base.errors import FileError, UsageError, file_error, file_errors, show
from pellucid.base.files import (
    check_parent,
    is_partial,
    make_folders,
    read_text,
    remove_made,
    sweep,
    sweep_folder,
    whole_file,
)
from pellucid.base.toml import parse_toml
from pellucid.formats import checkpoint_manifest
from pellucid.formats.checkpoint_manifest import (
    ADAPTER,
    BEST,
    CHECKPOINTS,
    MODEL,
    PARTIAL,
    checkpoint_name,
    parse_step,
)
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.events import EndReason
from pellucid.training.saving import published
from pellucid.training.saving.lock import FolderLock, is_locked
from pellucid.training.saving.published import Origin

if TYPE_CHECKING:  # commands that only read a run start without torch
    from pellucid.training.saving.checkpoint import Snapshot

RECIPE, LOG, LOCK = "recipe.toml", "log.jsonl", "lock"
RECORDER, DATA, TENSORBOARD = "recorder.jsonl", "data", "tensorboard"
MODELS = (MODEL, ADAPTER, BEST)
_LEFTOVER = re.compile(rf"{re.escape(PARTIAL)}step-\d+-\d+-\d+(-old|-purged)?")
_COUNT = itertools.count()


class Status(NamedTuple):
    state: str
    """new, running, interrupted, stopped (by gradients that are not finite) or finished."""
    step: int
    """Of the newest checkpoint; 0 where there is none."""


class RunFolder:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.kept: list[Path] = []
        """Where models were moved that had files which the run did not write."""
        self._recipe: dict[str, Any] | None = None
        self._has_lock = self._has_begun = False

    # ---- one process at a time

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """In this block no other process can write here.

        A folder that is neither empty nor a run's is refused. Where no run was begun in the block, what this
        call created is removed again.
        """
        self._check_own_folder()
        created = make_folders(self.checkpoints)
        try:
            with file_errors("write", self.path):
                lock = FolderLock(self.path / LOCK)
        except FileError:
            remove_made(created)
            raise
        try:
            lock.acquire()
            self._has_lock, self._has_begun = True, False
            self._sweep()
            yield
        finally:
            had_lock, self._has_lock = self._has_lock, False
            if lock.is_open:
                try:
                    if had_lock and not self._has_begun:
                        with contextlib.suppress(OSError):
                            if lock.is_new:
                                lock.path.unlink(missing_ok=True)
                        remove_made(created)
                finally:
                    lock.close()

    def check_new(self) -> None:
        """Refuses a folder in which no run can begin; nothing is written."""
        if not os.path.lexists(self.path):
            check_parent(self.path, folder=True)
        self._check_own_folder()
        with file_errors("read", self.path):
            holds_run = (self.path / RECIPE).exists() or bool(self._steps())
        if holds_run:
            raise UsageError(
                f"{self.path} already holds a run: `pellucid train --resume {self.path}` continues it; "
                "out=ANOTHER starts another."
            )

    def _check_own_folder(self) -> None:
        """Refuses a folder that holds anything but a run, or what a killed start of one left."""
        with file_errors("read", self.path):
            if self.path.exists() and not self.path.is_dir():
                raise UsageError(f"{self.path} is a file, and a run needs a folder: name another out.")
            began = (self.path / LOG).is_file() or self.checkpoints.is_dir()
            if ((self.path / RECIPE).is_file() and began) or self._steps():
                return
            beside = os.listdir(self.path) if self.path.is_dir() else []
            inside = os.listdir(self.checkpoints) if self.checkpoints.is_dir() else []
        ours = (LOCK, CHECKPOINTS)
        foreign = [name for name in beside if name not in ours and not is_partial(self.path / name)]
        foreign += [f"{CHECKPOINTS}/{name}" for name in inside if not _LEFTOVER.fullmatch(name)]
        if foreign:
            raise UsageError(
                f"{self.path} is not empty and not the folder of a run: it holds {show(min(foreign))}. Name "
                "another out, for example a folder that is not there yet."
            )

    def _sweep(self) -> None:
        """Removes incomplete files of killed processes; files that no run wrote stay."""
        with file_errors("write", self.path):
            left = [path for path in self.checkpoints.iterdir() if _LEFTOVER.fullmatch(path.name)]
        sweep_folder(self.path)
        for part in MODELS:
            sweep(self.path / part)
        for path in left:
            shutil.rmtree(path, ignore_errors=True)

    # ---- writing; inside `lock`

    def begin(self, recipe_toml: str) -> None:
        """Begins a new run. Its recipe is written first, so that it can continue from wherever it stops."""
        self._check_lock()
        self.check_new()
        try:
            self.write_recipe(recipe_toml)
        except FileError:  # perhaps only the fsync of its folder failed
            self.abandon()
            raise
        self._has_begun = True

    def abandon(self) -> None:
        """Removes a run that this process began and that made no step: nothing of it was here before."""
        self._check_lock()
        for name in (RECIPE, LOG, RECORDER):
            with contextlib.suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        for name in (DATA, TENSORBOARD):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self._has_begun, self._recipe = False, None

    def write_recipe(self, recipe_toml: str) -> None:
        """Writes the recipe, whole or not at all."""
        self._check_lock()
        recipe = tomllib.loads(recipe_toml)
        with whole_file(self.path / RECIPE) as file:
            file.write(recipe_toml.encode())
        self._recipe = recipe

    def check_models(self) -> None:
        """Refuses, before a step is made, a model folder with files that the run did not write."""
        for part in MODELS:
            with file_errors("read", self.path / part):
                name = published.find_foreign(self.path / part)
            if name:
                raise UsageError(
                    f"{self.path / part} is replaced at every save, and it holds {show(name)}, which this "
                    "run did not write or which was changed since: move it elsewhere."
                )

    def save(
        self,
        snapshot: "Snapshot",
        environment: dict[str, Any],
        keep: int,
        ranks: Ranks = SINGLE_PROCESS,
        every: int = 1,
    ) -> Path:
        """Writes a complete checkpoint and replaces `model`; then removes older checkpoints.

        A complete checkpoint of this step is not written again: the same run at the same step is the same.
        All ranks take part; the main one has the lock.
        """
        if ranks.is_main:
            self._check_lock()
        path = self.checkpoints / checkpoint_name(snapshot.step)
        if not ranks.on_main_then_broadcast(lambda: _is_valid(checkpoint_manifest.check_contents, path)):
            snapshot = self._with_name(snapshot)
            from pellucid.training.saving import checkpoint

            path = checkpoint.write(self.checkpoints, snapshot, self.read_recipe(), environment, ranks)

        def publish_and_purge() -> None:
            known = checkpoint_manifest.check_sizes(path)
            for part in (MODEL, ADAPTER):
                if (path / part).is_dir():
                    self._remember(
                        published.publish_checkpoint(self.path / part, path / part, snapshot.step, known)
                    )
            self._purge(snapshot.step, keep, every)

        ranks.on_main_then_broadcast(publish_and_purge)
        return path

    def save_best(self, snapshot: "Snapshot", loss: float, ranks: Ranks = SINGLE_PROCESS) -> Path:
        """Writes the model of a snapshot to `best`, with its validation loss. All ranks take part."""
        from pellucid.formats import model_folder
        from pellucid.training.saving import checkpoint

        best = self.path / BEST
        model = checkpoint.make_pretrained(self._with_name(snapshot), ranks)
        ranks.on_main_then_broadcast(
            lambda: self._remember(
                published.publish(best, lambda new: model_folder.write(new, model), snapshot.step, loss)
            )
        )
        return best

    def _with_name(self, snapshot: "Snapshot") -> "Snapshot":
        return snapshot._replace(name=snapshot.name or self.path.resolve().name)

    def _remember(self, kept: Path | None) -> None:
        if kept is not None:
            self.kept.append(kept)

    def _purge(self, step: int, keep: int, every: int) -> None:
        """Removes all but the newest keep − 1 of the checkpoints before this step, whose own is complete.

        Only those of the schedule are kept: one between them, saved by the clock or at an interruption, is
        needed until there is a newer one. A damaged one does not count, and stays for inspection.
        """
        older = [at for at in self._steps() if at < step and self._is_intact(at)]
        kept = [at for at in older if at % every == 0][: max(keep, 1) - 1]
        for at in older:
            if at in kept:
                continue
            old = self.checkpoints / checkpoint_name(at)
            gone = self.checkpoints / f"{PARTIAL}{old.name}-{os.getpid()}-{next(_COUNT)}-purged"
            with file_errors("write", old):
                old.rename(gone)  # first, so that it is never seen with a part of its files
            shutil.rmtree(gone, ignore_errors=True)

    def _check_lock(self) -> None:
        if not self._has_lock:
            raise RuntimeError("a run folder is written only inside `with folder.lock():`")

    # ---- reading

    def read_recipe(self) -> dict[str, Any]:
        """Returns the recipe of this run as a table."""
        if self._recipe is None:
            path = self.path / RECIPE
            self._recipe = parse_toml(read_text(path), str(path))
        return self._recipe

    def find_newest(self, most: int | None = None) -> tuple[Path | None, list[str]]:
        """Returns the newest checkpoint whose every byte is as saved, and why newer ones are skipped.

        With `most`, only checkpoints up to that step are considered.
        """
        skipped: list[str] = []
        for step in self._steps():
            if most is not None and step > most:
                continue
            path = self.checkpoints / checkpoint_name(step)
            try:
                checkpoint_manifest.check_contents(path)
            except FileError as error:
                skipped.append(f"skipped the checkpoint of step {step}: {error}")
            else:
                return path, skipped
        return None, skipped

    def read_best(self) -> Origin | None:
        """Returns step and validation loss of the model in `best`; None where there is none."""
        with file_errors("read", self.path / BEST):
            return published.read_origin(self.path / BEST)

    def read_status(self) -> Status:
        """Returns the state of the run; checkpoints are checked by the sizes of their files only."""
        steps = filter(self._is_intact, self._steps())
        step = next(steps, None)
        last = _last_line(self.path / LOG)
        reason = EndReason.from_message(str(last.get("why", "")))
        ended = reason in (EndReason.FINISHED, EndReason.EARLY_STOPPED)
        if is_locked(self.path / LOCK):
            state = "running"
        elif reason is EndReason.NONFINITE:
            state = "stopped"
        elif ended and (step == last.get("step") or not self._steps()):  # else its last checkpoint was lost
            state = "finished"
        else:
            state = "new" if step is None and not last else "interrupted"
        return Status(state, step or 0)

    def _is_intact(self, step: int) -> bool:
        """Returns whether the checkpoint of a step has all its files, each of its size."""
        return _is_valid(checkpoint_manifest.check_sizes, self.checkpoints / checkpoint_name(step))

    def _steps(self) -> list[int]:
        """Returns the steps of all checkpoints, complete or not, the newest first."""
        try:
            found = [parse_step(path.name) for path in self.checkpoints.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise file_error("read", self.checkpoints, error) from None
        return sorted((step for step in found if step is not None), reverse=True)


def _is_valid(check: Callable[[Path], object], path: Path) -> bool:
    """Returns whether a checkpoint passes a check of the manifest."""
    try:
        check(path)
    except FileError:
        return False
    return True


def _last_line(path: Path) -> dict[str, Any]:
    """Returns the last complete line of a log; an empty table where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(table := json.loads(line), dict):
                return table
    return {}
