"""A training run: the loop over steps, its log, evaluations and checkpoints.

    run = Run(TrainState(recipe, source), folder)
    for event in run.events(): …        # until the recipe's last step, or until `request_stop`

`begin` and `resume` in resume.py build one. Of several ranks all train, evaluate and save; the first one
writes the log.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls
from pellucid.config.cost import FORWARD_BACKWARD, FROZEN_WEIGHTS, count_flops_per_token
from pellucid.training import memory
from pellucid.training.device import use_deterministic_algorithms
from pellucid.training.evaluate import evaluate
from pellucid.training.events import (
    Ended,
    EndReason,
    Evaluated,
    Event,
    Recorded,
    Rescheduled,
    Saved,
    Skipped,
    Started,
    Stepped,
)
from pellucid.training.history.log import Board, Log, make_line
from pellucid.training.history.nonfinite import NonfiniteLocator
from pellucid.training.history.recorder import Recorder
from pellucid.training.machine import find_peak
from pellucid.training.pace import Pace
from pellucid.training.recipe import Recipe
from pellucid.training.saving.environment import get_environment
from pellucid.training.saving.run_folder import LOG, RECORDER, TENSORBOARD, RunFolder
from pellucid.training.state import TrainState
from pellucid.training.step import train_step

MAX_NONFINITE = 5
"""Steps in a row without a finite gradient that end a run."""
BEST_SECONDS, BEST_SHARE = 10.0, 0.1
"""Saving the best model may always take this many seconds, and this share of the training time."""
SAVE, FIT = "save", "fit"
"""What ranks agree on where a checkpoint, or a look at the time that is left, is due by the clock of one."""


class Run:
    """Trains a state to its end; without a folder nothing is logged or saved.

    With a folder, use it inside `folder.lock()`, so that no other process trains in the same folder. A run is
    then a path, that of its folder: `pellucid.load(run)` opens its newest model.
    """

    def __init__(self, state: TrainState, folder: RunFolder | None = None) -> None:
        self.state, self._folder = state, folder
        self.recipe, self.ranks = state.recipe, state.ranks
        self.recorder = Recorder(state.recipe.train.record_every)
        self.hooks = [self.recorder, NonfiniteLocator()]
        self.ended: Ended | None = None
        """The last event; None before the end."""
        passes = FROZEN_WEIGHTS if self.recipe.lora.rank else FORWARD_BACKWARD
        self.flops_per_token = count_flops_per_token(state.model.config, self.recipe.length, passes)
        self.steps_per_epoch = state.source.train.count_steps_per_epoch(self.recipe.data.batch_size)
        """Steps in which the text is read once, [] float; None where it has no end."""
        self.logs: dict[str, Log] = {}
        self.board: Board | None = None
        if folder is not None and self.ranks.is_main:
            self.logs = {name: Log(folder.path / name) for name in (LOG, RECORDER)}
            self.board = Board(folder.path / TENSORBOARD) if self.recipe.train.tensorboard else None
        self._stop_requested = False
        self._saved_step, self._saved_at = -1, 0.0
        """The step of the last checkpoint of this process, and the time when it was saved."""
        self._seconds_for_best = 0.0

    @property
    def folder(self) -> RunFolder:
        if self._folder is None:
            raise UsageError("this run is in memory only: it was built without a folder.")
        return self._folder

    def __fspath__(self) -> str:
        return str(self.folder.path)

    def __repr__(self) -> str:
        place = str(self._folder.path) if self._folder else "in memory"
        done = self.ended.message if self.ended else "not ended"
        return escape_controls(f"<Run {place}: step {self.state.meters.step:,}, {done}>", keep="")

    @property
    def end_reason(self) -> EndReason | None:
        """Why the run ended; None before its end."""
        return self.ended.reason if self.ended else None

    def request_stop(self) -> None:
        """Lets the step under way end, saves, and ends the run as interrupted; safe in a signal handler."""
        self._stop_requested = True

    def step(self) -> Stepped | Skipped:
        """Makes one update of the weights."""
        return train_step(self.state, self.hooks)

    # ---- the loop

    def events(self) -> Iterator[Event]:
        """Trains to the end; yields what happens, each event after it was logged."""
        device, done = str(self.state.device), lambda: self.state.meters.step
        explained = memory.explain_out_of_memory(self.recipe, device, done, self.ranks.world)
        with self.ranks.catch_lost_ranks(), explained:
            for event in self._train():
                self._log(event)
                yield event
        if self.board:
            self.board.close()

    def _train(self) -> Iterator[Event]:
        state, recipe, meters = self.state, self.recipe, self.state.meters
        pace = Pace(recipe.minutes, meters.seconds, meters.step)
        with use_deterministic_algorithms(state.is_deterministic), contextlib.closing(state.loader):
            yield self._make_started()
            reason, detail, first_step, self._saved_at = EndReason.FINISHED, "", meters.step, time.monotonic()
            while meters.step < self.recipe.steps:
                is_fit_due = self.ranks.is_main and pace.is_due(meters.step)  # one clock decides
                request = self._agree(self._is_save_overdue(first_step), is_fit_due)
                if request == SAVE:
                    yield self.save()
                    continue  # a stop may have been requested meanwhile
                if request == FIT:  # then a step is made: no checkpoint of this one may know of it
                    if rescheduled := self._reschedule(pace):
                        yield rescheduled
                elif request:
                    break
                result = self.step()
                compiled = state.compiled_loss
                if compiled and (compared := compiled.take_comparison(result.step)):
                    yield compared
                yield result
                if recorded := self.recorder.take():
                    yield recorded
                if isinstance(result, Skipped) and meters.nonfinite_in_a_row >= self._max_nonfinite:
                    reason, detail = EndReason.NONFINITE, self._describe_nonfinite(result)
                    break
                if meters.step % recipe.evaluation.every == 0 or self.recipe.ends_at(meters.step):
                    evaluated = evaluate(state)
                    yield evaluated
                    if best := self._save_best(evaluated):
                        yield best
                    waited = meters.evaluations_without_improvement
                    if recipe.train.patience and waited >= recipe.train.patience:
                        reason, detail = (
                            EndReason.EARLY_STOPPED,
                            f"{waited} evaluations without a better loss",
                        )
                        break
                if self._folder and meters.step % recipe.checkpoint.every == 0:
                    yield self.save()
            if self._folder and self._saved_step != meters.step:
                yield self.save()
            if self._stop_requested:
                reason, detail = EndReason.INTERRUPTED, ""
            best_loss = None if math.isnan(meters.best_loss) else meters.best_loss
            self.ended = Ended(meters.step, reason, meters.smoothed_loss, best_loss, meters.seconds, detail)
            yield self.ended

    def _is_save_overdue(self, first_step: int) -> bool:
        """Returns whether a checkpoint is due by the clock; not for a step that this process has saved or
        loaded."""
        limit = self.recipe.checkpoint.minutes * 60
        if not self._folder or not limit or self.state.meters.step in (first_step, self._saved_step):
            return False
        return time.monotonic() - self._saved_at > limit

    def _agree(self, is_save_overdue: bool, is_fit_due: bool = False) -> str:
        """Returns what all ranks do now: end ("interrupted"), save or look at the time that is left where
        that is due on one, or train."""
        due = SAVE if is_save_overdue else FIT * is_fit_due
        agreed = self.ranks.agree(EndReason.INTERRUPTED.value if self._stop_requested else due)
        if agreed not in ("", SAVE, FIT):  # else not touched: a signal may have set it meanwhile
            self._stop_requested = True
        return agreed

    def _reschedule(self, pace: Pace) -> Rescheduled | None:
        """Gives the run the number of steps that it has time for, and writes that into its recipe first."""
        step, before = self.state.meters.step, self.recipe.steps
        planned = self.recipe.steps_at(0)
        steps = self.ranks.on_main_then_broadcast(lambda: pace.fit(step, before, planned))
        if steps == before:
            return None
        if folder := self._folder:

            def write() -> None:
                folder.write_recipe(Recipe.from_dict(folder.read_recipe()).extend(step, steps).to_toml())

            self.ranks.on_main_then_broadcast(write)
        self.recipe = self.state.recipe = self.recipe.extend(step, steps)
        return Rescheduled(step, steps, before)

    @property
    def _max_nonfinite(self) -> int:
        return 1 if self.recipe.train.on_nonfinite == "stop" else MAX_NONFINITE

    def _describe_nonfinite(self, skipped: Skipped) -> str:
        count = self.state.meters.nonfinite_in_a_row
        steps = f"{count} steps in a row" if count > 1 else f"step {skipped.step}"
        return f"{steps} without a finite gradient, at {skipped.name}"

    def _make_started(self) -> Started:
        state, recipe = self.state, self.recipe
        return Started(
            state.meters.step,
            recipe.steps,
            sum(parameter.numel() for parameter in state.weights.named.values()),
            recipe.data.batch_size * recipe.length,
            self.flops_per_token,
            str(state.device),
            state.compiled,
            state.source.entropy_floor,
            state.meters.step > 0,
        )

    # ---- the log

    def _log(self, event: Event) -> None:
        if not self.logs:
            return
        extra = self._log_extra(event)
        self.logs[RECORDER if isinstance(event, Recorded) else LOG].write(event, **extra)
        if self.board and not isinstance(event, Recorded):
            self.board.write(make_line(event, **extra))

    def _log_extra(self, event: Event) -> dict[str, Any]:
        """Returns what the log has besides the event's fields: epochs, MFU, and the entropy floor."""
        state, extra = self.state, dict[str, Any]()
        if isinstance(event, Stepped | Evaluated) and self.steps_per_epoch:
            extra["epoch"] = round(event.step / self.steps_per_epoch, 4)
        if isinstance(event, Stepped):
            achieved = event.tokens_per_second * self.flops_per_token
            extra["mfu"] = achieved / (find_peak(str(state.device), state.dtype) * self.ranks.world)
        if isinstance(event, Evaluated) and event.gap is not None:
            extra["floor"] = state.source.entropy_floor
        return extra

    # ---- checkpoints

    def save(self) -> Saved:
        """Saves a checkpoint of the current step."""
        began = time.perf_counter()
        for log in self.logs.values():
            log.fsync()  # so that no power cut leaves the log behind the checkpoint
        if self.board:
            self.board.flush()
        settings, snapshot = self.recipe.checkpoint, self.state.snapshot()
        path = self.folder.save(snapshot, self.environment(), settings.keep, self.ranks, settings.every)
        self._saved_step, self._saved_at = self.state.meters.step, time.monotonic()
        return Saved(self.state.meters.step, str(path), time.perf_counter() - began)

    def _save_best(self, event: Evaluated) -> Saved | None:
        """Saves the model that was just evaluated, where its loss is the lowest.

        On a slow disk some are not saved, so that saving takes a tenth of the time at most; the last
        evaluation of a run always counts.
        """
        if not self._folder or not self.recipe.checkpoint.keep_best or not math.isfinite(event.loss):
            return None
        is_slow = self._seconds_for_best > BEST_SECONDS + BEST_SHARE * self.state.meters.seconds
        is_due = not is_slow or self.recipe.ends_at(event.step)
        if not self.ranks.on_main_then_broadcast(lambda: is_due and self._is_best(event.loss)):
            return None
        began = time.perf_counter()
        path = self.folder.save_best(self.state.snapshot(), event.loss, self.ranks)
        seconds = time.perf_counter() - began
        self._seconds_for_best += seconds
        return Saved(event.step, str(path), seconds, event.loss)

    def _is_best(self, loss: float) -> bool:
        best = self.folder.read_best()
        return best is None or best.loss is None or loss < best.loss

    def environment(self) -> dict[str, object]:
        """Returns what the bits of this run depend on besides its recipe."""
        state = self.state
        return get_environment(state.compiled, state.device, self.ranks.world, self.recipe.train.parallel)
