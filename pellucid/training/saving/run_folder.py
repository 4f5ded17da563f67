"""The folder of a run: its recipe first, then its log and checkpoints; one process at a time writes there.

OUT/recipe.toml      the run, with nothing left to choose
OUT/log.jsonl        what happened
OUT/recorder.jsonl   how large activations, gradients and updates were
OUT/checkpoints/     step-0000500, step-0001000, …
OUT/model/           the model of the newest checkpoint
OUT/adapter/         its adapter, where the run has one
OUT/best/            the model with the lowest validation loss so far
OUT/data/            what was made of the text
OUT/lock             held while a process works here
"""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import socket
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.errors import FileError, UsageError, file_error, show
from pellucid.files import (
    check_parent,
    is_partial,
    make_folders,
    read_bytes,
    remove_made,
    sweep,
    sweep_folder,
    whole_file,
)
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.events import EndReason
from pellucid.training.saving import manifest, published
from pellucid.training.saving.manifest import ADAPTER, BEST, CHECKPOINTS, MODEL, PARTIAL, name_of, step_of
from pellucid.training.saving.published import Origin

if TYPE_CHECKING:  # who only looks at a run need not wait for torch
    from pellucid.training.saving.checkpoint import Snapshot

RECIPE, LOG, LOCK = "recipe.toml", "log.jsonl", "lock"
RECORDER, DATA, TENSORBOARD = "recorder.jsonl", "data", "tensorboard"
MODELS = (MODEL, ADAPTER, BEST)
PATIENCE = 0.3
"""Seconds: who only looks whether a run is going on holds its lock for a moment."""
_LEFT = re.compile(rf"{re.escape(PARTIAL)}step-\d+-\d+-\d+(-old|-purged)?")
_LEFT_BESIDE = re.compile(r"\.(model|adapter)-\d+-\d+|recipe\.toml\.\d+-\d+\.partial")
"""What killed processes of earlier versions left; `pellucid.files` knows those of this one."""
_COUNT = itertools.count()
_HANDLES: set[int] = set()


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
        self._has_lock = self._begun = False

    # ---- one process at a time

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """In this block no other process can write here. However the process ends, its lock ends with it.

        A folder that is neither empty nor a run's is refused. Where no run was begun in the block, what this
        call made is removed again.
        """
        self._need_own_folder()
        made = make_folders(self.checkpoints)
        try:
            with _telling(self.path):
                handle, is_new = self._open_lock()
        except FileError:
            remove_made(made)
            raise
        try:
            self._acquire(handle)
            self._has_lock, self._begun = True, False
            self._sweep()
            yield
        finally:
            had_lock, self._has_lock = self._has_lock, False
            if handle in _HANDLES:  # not in a forked child, which has let go of it already
                try:
                    if had_lock and not self._begun:
                        with contextlib.suppress(OSError):
                            if is_new:
                                (self.path / LOCK).unlink(missing_ok=True)
                        remove_made(made)
                finally:
                    _HANDLES.discard(handle)
                    os.close(handle)

    def check_new(self) -> None:
        """Refuses a folder in which no run can begin; nothing is written."""
        if not os.path.lexists(self.path):
            check_parent(self.path, folder=True)
        self._need_own_folder()
        with _telling(self.path, "read"):
            holds_run = (self.path / RECIPE).exists() or bool(self._steps())
        if holds_run:
            raise UsageError(
                f"{self.path} already holds a run: `pellucid train --resume {self.path}` continues it; "
                "out=ANOTHER starts another."
            )

    def _need_own_folder(self) -> None:
        """Refuses a folder that holds anything but a run, or what a killed start of one left."""
        with _telling(self.path, "read"):
            if self.path.exists() and not self.path.is_dir():
                raise UsageError(
                    f"{self.path} is a file, where a run would have its folder: name another out."
                )
            began = (self.path / LOG).is_file() or self.checkpoints.is_dir()
            if ((self.path / RECIPE).is_file() and began) or self._steps():
                return
            beside = os.listdir(self.path) if self.path.is_dir() else []
            inside = os.listdir(self.checkpoints) if self.checkpoints.is_dir() else []
        ours = (LOCK, CHECKPOINTS)
        foreign = [
            name
            for name in beside
            if name not in ours and not _LEFT_BESIDE.fullmatch(name) and not is_partial(self.path / name)
        ]
        foreign += [f"{CHECKPOINTS}/{name}" for name in inside if not _LEFT.fullmatch(name)]
        if foreign:
            raise UsageError(
                f"{self.path} is not empty and not the folder of a run: it holds {show(min(foreign))}. Name "
                "another out, for example a folder that is not there yet."
            )

    def _open_lock(self) -> tuple[int, bool]:
        """The lock's file, and whether this call made it."""
        path, flags = self.path / LOCK, os.O_RDWR | os.O_CREAT
        try:
            handle, is_new = os.open(path, flags | os.O_EXCL, 0o666), True
        except FileExistsError:
            handle, is_new = os.open(path, flags, 0o666), False
        _HANDLES.add(handle)
        return handle, is_new

    def _acquire(self, handle: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not _locked(handle, self.path):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"{self.path} is in use by {_holder(handle)}: wait for its end, or name another out."
                )
            time.sleep(PATIENCE / 20)
        if not _is_file_at(handle, self.path / LOCK):  # its maker was refused, and has just removed it
            raise UsageError(f"{self.path} was in use by another process until now: try again.")
        with contextlib.suppress(OSError):  # a full disk forgets who it was, not that it is locked
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)

    def _sweep(self) -> None:
        """Remove what processes that were cut off left half-made; whatever is not ours stays."""
        with _telling(self.path):
            left = [path for path in self.checkpoints.iterdir() if _LEFT.fullmatch(path.name)]
            beside = [path for path in self.path.iterdir() if _LEFT_BESIDE.fullmatch(path.name)]
        sweep_folder(self.path)
        for part in MODELS:
            sweep(self.path / part)
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        for path in beside:
            with contextlib.suppress(OSError):
                path.unlink()

    # ---- writing; inside `lock`

    def begin(self, recipe_toml: str) -> None:
        """A new run. Its recipe is there before anything else, so it can go on from wherever it stops."""
        self._need_lock()
        self.check_new()
        try:
            self.change(recipe_toml)
        except FileError:  # perhaps only the disk's memory of its name failed
            self.abandon()
            raise
        self._begun = True

    def abandon(self) -> None:
        """Remove a run that this process began and that made no step: nothing of it was here before."""
        self._need_lock()
        for name in (RECIPE, LOG, RECORDER):
            with contextlib.suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        for name in (DATA, TENSORBOARD):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self._begun, self._recipe = False, None

    def change(self, recipe_toml: str) -> None:
        """Write the recipe, whole or not at all."""
        self._need_lock()
        recipe = tomllib.loads(recipe_toml)
        with whole_file(self.path / RECIPE) as file:
            file.write(recipe_toml.encode())
        self._recipe = recipe

    def need_own_models(self) -> None:
        """Refuses, before a step is made, a model folder with files that the run did not write."""
        for part in MODELS:
            with _telling(self.path / part, "read"):
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
        """A complete checkpoint, and `model` its model; then older ones are removed.

        A step that is there complete is not written again: the same run at the same step is the same. All
        ranks take part; the first one holds the folder.
        """
        if ranks.is_main:
            self._need_lock()
        made = self.checkpoints / name_of(snapshot.step)
        if not ranks.on_main_then_broadcast(lambda: _passes(manifest.check, made)):
            snapshot = self._named(snapshot)
            from pellucid.training.saving import checkpoint

            made = checkpoint.write(self.checkpoints, snapshot, self.recipe(), environment, ranks)

        def publish_and_purge() -> None:
            known = manifest.outline(made)
            for part in (MODEL, ADAPTER):
                if (made / part).is_dir():
                    self._remember(published.link(self.path / part, made / part, snapshot.step, known))
            self._purge(snapshot.step, keep, every)

        ranks.on_main_then_broadcast(publish_and_purge)
        return made

    def save_best(self, snapshot: "Snapshot", loss: float, ranks: Ranks = SINGLE_PROCESS) -> Path:
        """The model of a snapshot as `best`, with its validation loss. All ranks take part."""
        from pellucid.interop import model_folder
        from pellucid.training.saving import checkpoint

        best = self.path / BEST
        model = checkpoint.pretrained(self._named(snapshot), ranks)
        ranks.on_main_then_broadcast(
            lambda: self._remember(
                published.publish(best, lambda new: model_folder.write(new, model), snapshot.step, loss)
            )
        )
        return best

    def _named(self, snapshot: "Snapshot") -> "Snapshot":
        return snapshot._replace(name=snapshot.name or self.path.resolve().name)

    def _remember(self, kept: Path | None) -> None:
        if kept is not None:
            self.kept.append(kept)

    def _purge(self, step: int, keep: int, every: int) -> None:
        """Of what is older than the checkpoint of this step, which is complete, keep the newest keep − 1.

        Only those of the schedule are kept so: one between them, saved by the clock or at an interruption, is
        needed until there is a newer one. A damaged one does not count, and is left to be looked
        at.
        """
        older = [at for at in self._steps() if at < step and self._outlined(at)]
        kept = [at for at in older if at % every == 0][: max(keep, 1) - 1]
        for at in older:
            if at in kept:
                continue
            old = self.checkpoints / name_of(at)
            gone = self.checkpoints / f"{PARTIAL}{old.name}-{os.getpid()}-{next(_COUNT)}-purged"
            with _telling(old):
                old.rename(gone)  # first, so that it is never seen with a part of its files
            shutil.rmtree(gone, ignore_errors=True)

    def _need_lock(self) -> None:
        if not self._has_lock:
            raise RuntimeError("a run folder is written inside `with folder.lock():` only")

    # ---- reading

    def recipe(self) -> dict[str, Any]:
        """The recipe of this run as plain data."""
        if self._recipe is None:
            path = self.path / RECIPE
            try:
                self._recipe = tomllib.loads(read_bytes(path).decode("utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise FileError(f"{path} is not a recipe: {error}.") from None
        return self._recipe

    def newest(self, most: int | None = None) -> tuple[Path | None, list[str]]:
        """The newest checkpoint that is complete to the last byte, and why newer ones are not taken; of those
        up to step `most`, where one is given."""
        skipped: list[str] = []
        for step in self._steps():
            if most is not None and step > most:
                continue
            path = self.checkpoints / name_of(step)
            try:
                manifest.check(path)
            except FileError as error:
                skipped.append(f"skipped the checkpoint of step {step}: {error}")
            else:
                return path, skipped
        return None, skipped

    def best(self) -> Origin | None:
        """Step and validation loss of the model in `best`."""
        with _telling(self.path / BEST, "read"):
            return published.origin(self.path / BEST)

    def status(self) -> Status:
        """How the run stands, at a glance: checkpoints are judged by their sizes alone."""
        steps = filter(self._outlined, self._steps())
        step = next(steps, None)
        last = _last_line(self.path / LOG)
        reason = EndReason.from_message(str(last.get("why", "")))
        ended = reason in (EndReason.FINISHED, EndReason.EARLY_STOPPED)
        if self._in_use():
            state = "running"
        elif reason is EndReason.NONFINITE:
            state = "stopped"
        elif ended and (step == last.get("step") or not self._steps()):  # else its last checkpoint was lost
            state = "finished"
        else:
            state = "new" if step is None and not last else "interrupted"
        return Status(state, step or 0)

    def _in_use(self) -> bool:
        try:
            handle = os.open(self.path / LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            return not _locked(handle, self.path, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def _outlined(self, step: int) -> bool:
        """Whether the checkpoint of a step has all its files, each of its size."""
        return _passes(manifest.outline, self.checkpoints / name_of(step))

    def _steps(self) -> list[int]:
        """The steps of all checkpoints, complete or not, the newest first."""
        try:
            found = [step_of(path.name) for path in self.checkpoints.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise file_error("read", self.checkpoints, error) from None
        return sorted((step for step in found if step is not None), reverse=True)


def _passes(judge: Callable[[Path], object], path: Path) -> bool:
    """Whether a checkpoint is what the judge wants: `manifest.check` or, quicker, `manifest.outline`."""
    try:
        judge(path)
    except FileError:
        return False
    return True


def _locked(handle: int, path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to take the lock; False where somebody else has it."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise file_error("lock", path / LOCK, error) from None
    return True


def _holder(handle: int) -> str:
    try:
        who = json.loads(os.pread(handle, 4096, 0))
        return f"process {int(who['pid'])} on {str(who['host'])[:80]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a log, an empty table where there is none."""
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


def _is_file_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _telling(path: Path, verb: str = "write") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise file_error(verb, path, error) from None


def _let_go() -> None:
    """A forked child must not go on holding the lock when its parent was killed."""
    for handle in _HANDLES:
        os.close(handle)
    _HANDLES.clear()


os.register_at_fork(after_in_child=_let_go)
