"""Rebuilds any step of a run, bit for bit, so that each weight's update can be explained.

    rebuilt = rebuild_step("runs/a", 121)
    rebuilt.updates["embed.weight"].new      # the weight that the run had after update 121

Training continues from the nearest earlier checkpoint, or from the initial weights, with the run's own code;
a hook keeps the inputs and results of the last step. Nothing is written into the run's folder, so this also
works while the run is training.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from pellucid.base.errors import AddressError, FileError, UsageError, did_you_mean
from pellucid.base.patterns import matches
from pellucid.data.sources.encoding import PROOF
from pellucid.data.sources.source import Source, kind_of, open_source
from pellucid.explanation.trace import Trace
from pellucid.formats.checkpoint_manifest import checkpoint_name, parse_step
from pellucid.formats.pretrained import Pretrained
from pellucid.reference.one_update import LENGTHS
from pellucid.reference.op import Array
from pellucid.training.device import use_deterministic_algorithms
from pellucid.training.events import Skipped, Stepped
from pellucid.training.history.log import Line, read
from pellucid.training.history.nonfinite import NonfiniteLocator
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.recipe import Recipe
from pellucid.training.saving import checkpoint, rng
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.saving.environment import compare_environments, get_environment
from pellucid.training.saving.run_folder import LOG, RECIPE, RunFolder
from pellucid.training.start import base_model_for_resume, get_parameter_shapes, resolve_recipe
from pellucid.training.state import TrainState
from pellucid.training.step import Hook, train_step
from pellucid.verification.runs.rebuilt_step import (
    MOMENTS,
    ParameterUpdate,
    RebuiltStep,
    to_float64,
    why_frozen,
)

Progress = Callable[[int, int], None]
"""Called after each rebuilt step with its number and that of the last one."""
COMPARED = ("loss", "lr", "grad_norm")
"""Figures of a logged step that a rebuilt step has as well."""


class _Parameters(NamedTuple):
    """Weights, moments, averages and update counts at one moment."""

    weights: dict[str, Array]
    moments: dict[str, dict[str, Array]]
    means: dict[str, Array]
    counts: dict[str, int]


class UpdateRecorder(Hook):
    """Keeps the gradients of a step and the named parameters before and after it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.grads: dict[str, Array] = {}
        self.clipped: dict[str, Array] = {}

    def before_forward(self, state: TrainState, batch: DeviceBatch) -> None:
        self.before = self._read(state)

    def after_backward(self, state: TrainState) -> None:
        self.grads = _grads(state)

    def before_update(self, state: TrainState) -> None:
        self.clipped = _grads(state)

    def updates(self, state: TrainState) -> dict[str, ParameterUpdate]:
        """Returns each parameter before and after the step, which has just been made."""
        before, after = self.before, self._read(state)
        return {
            name: ParameterUpdate(
                str(state.weights.named[name].dtype).removeprefix("torch."),
                before.weights[name], after.weights[name], self.grads.get(name), self.clipped.get(name),
                before.moments[name], after.moments[name], before.means.get(name), after.means.get(name),
                before.counts[name],
            )
            for name in self.names
        }  # fmt: skip

    def grad_norms(self) -> dict[str, float]:
        return {name: math.sqrt(float(np.square(grad).sum())) for name, grad in self.grads.items()}

    def _read(self, state: TrainState) -> _Parameters:
        named, means = state.weights.named, state.average.mean
        optimizer = {name: state.optimizer.state.get(named[name], {}) for name in self.names}
        return _Parameters(
            {name: to_float64(named[name]) for name in self.names},
            {
                name: {MOMENTS[key]: to_float64(value) for key, value in own.items() if key in MOMENTS}
                for name, own in optimizer.items()
            },
            {name: to_float64(means[name]) for name in self.names if name in means},
            {name: int(own.get("step", 0)) for name, own in optimizer.items()},
        )


def _grads(state: TrainState) -> dict[str, Array]:
    return {n: to_float64(p.grad) for n, p in state.weights.trainable.items() if p.grad is not None}


class PastRun:
    """A run folder, any step of which can be rebuilt."""

    def __init__(self, path: str | Path, raw_tokens: bool = False) -> None:
        self.folder, self.raw_tokens = RunFolder(path), raw_tokens
        if not (self.folder.path / RECIPE).is_file():
            raise UsageError(f"{path} is not a run folder: it has no {RECIPE}.")
        self.recipe = Recipe.from_dict(self.folder.read_recipe())
        self.base = base_model_for_resume(self.recipe, self.folder.find_newest()[0])
        self.source = _open_data(self.recipe, self.folder.path, self.base)
        self._beginning = self.source.train.state()
        self.shapes = get_parameter_shapes(self.recipe, self.base, self.source.tokenizer.vocab_size)
        log = self.folder.path / LOG
        self.lines = read(log) if log.exists() else []

    @property
    def parameters(self) -> list[str]:
        return list(self.shapes)

    @property
    def reached(self) -> int:
        """Returns how many steps the run has made."""
        logged = [int(line["step"]) for line in self.lines if isinstance(line.get("step"), int)]
        return max(self.folder.read_status().step, *logged, 0)

    def parameter(self, name: str) -> str:
        """Returns the parameter that a name of the trace belongs to; for a value of all parameters, such as
        grad_norm, the first trainable one."""
        base = name.removeprefix("d.")
        if base in ("grad_norm", "clip", LENGTHS):
            return next(name for name in self.parameters if not self.why_frozen(name))
        owners = [name for name in self.parameters if base == name or base.startswith(f"{name}.")]
        if not owners:
            raise AddressError(
                f"{base!r} is not a parameter of this run.{did_you_mean(base, self.parameters, 3)}"
            )
        return max(owners, key=len)

    def why_frozen(self, name: str) -> str:
        """Returns the recipe key that freezes a parameter; empty where it is trainable."""
        return why_frozen(self.recipe, name)

    def check_step(self, k: int) -> None:
        """Refuses a step that the run has not made."""
        if not 0 <= k <= self.reached:
            raise UsageError(
                f"{self.folder.path} has made {self.reached:,} of {self.recipe.steps:,} updates, so there is "
                f"nothing at {k:,}: ask for @{self.reached} or an earlier one."
            )

    def outline(self, name: str, k: int) -> Trace:
        """Returns the trace of an update with zeros for all numbers: its names and shapes."""
        zeros = np.zeros(self.shapes[name])
        mean = zeros if self.recipe.train.ema else None
        grad = None if self.why_frozen(name) else zeros
        update = ParameterUpdate("float64", zeros, zeros, grad, grad, {}, {}, mean, mean, 0)
        event = Stepped(k, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0) if k else None
        return RebuiltStep(
            k, 0, self.recipe, event, {name: update}, {name: 0.0}, vocabulary=self._vocabulary()
        ).trace(name)

    def rebuild(self, k: int, only: Sequence[str] = ("*",), progress: Progress | None = None) -> RebuiltStep:
        """Computes step k again and keeps the parameters whose names match one of the patterns."""
        self.check_step(k)
        names = [name for name in self.parameters if matches(name, only)]
        with self.open_state(k - 1) as (state, _, saved_environment):
            start = state.meters.step
            if k == 0:
                return self._initial(state, names)
            while state.meters.step < k - 1:
                train_step(state)
                if progress:
                    progress(state.meters.step, k)
            recorder = UpdateRecorder(names)
            event = train_step(state, [recorder, NonfiniteLocator()])
            updates = recorder.updates(state)
            own_environment = get_environment(state.compiled, state.device)
        logged = self.find_logged(event.step)
        remarks = tuple(_compare_figures(event, logged)) if logged else ()
        rebuilt = RebuiltStep(
            k, start, self.recipe, event, updates, recorder.grad_norms(), self._read_saved(k), remarks,
            bool(logged), self._vocabulary(), state.device.type,
        )  # fmt: skip
        if rebuilt.is_exact:
            return rebuilt
        return replace(rebuilt, remarks=(*remarks, *compare_environments(saved_environment, own_environment)))

    @contextlib.contextmanager
    def open_state(self, most: int) -> Iterator[tuple[TrainState, Snapshot | None, dict[str, object]]]:
        """Yields the state of the newest complete checkpoint up to step `most`, or the one before the first
        step; that checkpoint, None for the start; and what the bits of the run depend on. Afterwards threads
        and RNG state are as before."""
        snapshot, environment = self._nearest_checkpoint(most)
        threads = environment.get("threads")
        with _isolate(threads if type(threads) is int else None):
            base = self.base if snapshot is not None else resolve_recipe(self.recipe)[1]
            self.source.train.restore(self._beginning)  # an earlier replay has read on
            state = TrainState(self.recipe, self.source, base)
            with use_deterministic_algorithms(state.is_deterministic), contextlib.closing(state.loader):
                if snapshot is not None:
                    state.restore(snapshot)
                yield state, snapshot, environment

    def _initial(self, state: TrainState, names: Sequence[str]) -> RebuiltStep:
        """Returns step 0: the weights before any update."""
        updates = {}
        for name in names:
            weight = to_float64(state.weights.named[name])
            updates[name] = ParameterUpdate("float64", weight, weight, None, None, {}, {}, None, None, 0)
        return RebuiltStep(0, 0, self.recipe, None, updates, vocabulary=self._vocabulary())

    def _vocabulary(self) -> tuple[str, ...]:
        tokenizer = self.source.tokenizer
        text = tokenizer.token if self.raw_tokens else tokenizer.visible
        return tuple(map(text, range(tokenizer.vocab_size)))

    def _nearest_checkpoint(self, most: int) -> tuple[Snapshot | None, dict[str, object]]:
        """Returns the newest complete checkpoint up to a step, and what the bits of the run depend on."""
        while True:
            found, _ = self.folder.find_newest(most)
            try:
                if found is not None:
                    return checkpoint.read_checked(found), checkpoint.read_environment(found)
                later, _ = self.folder.find_newest()
                return None, checkpoint.read_environment(later) if later else {}
            except FileError:  # a run under way has just removed it
                if found is not None:
                    most = (parse_step(found.name) or 0) - 1

    def _read_saved(self, k: int) -> Snapshot | None:
        try:
            return checkpoint.read(self.folder.checkpoints / checkpoint_name(k))
        except FileError:
            return None

    def find_logged(self, step: int) -> Line:
        """Returns the log's line of a step; an empty one where it has none."""
        found = (line for line in reversed(self.lines) if line.get("step") == step)
        return next((line for line in found if line["kind"] in ("step", "skipped")), {})


def _compare_figures(event: Stepped | Skipped, logged: Line) -> Iterator[str]:
    """Yields each difference between a rebuilt step and its line of the log."""
    if (logged["kind"] == "skipped") != isinstance(event, Skipped):
        logged_as = "skipped" if logged["kind"] == "skipped" else "made"
        yield f"by the log, update {event.step} was {logged_as}; here it is not"
    elif isinstance(event, Stepped):
        for key in COMPARED:
            if logged.get(key) != getattr(event, key):
                yield f"{key} is {getattr(event, key)!r} here, and {logged.get(key)!r} in the log"


def rebuild_step(
    folder: str | Path, step: int, only: Sequence[str] = ("*",), progress: Progress | None = None
) -> RebuiltStep:
    """Computes one step of a run again and keeps the parameters whose names match one of the patterns."""
    return PastRun(folder).rebuild(step, only, progress)


def _open_data(recipe: Recipe, folder: Path, start: Pretrained | None) -> Source:
    """Returns the data that the run was trained on; nothing is prepared anew."""
    data, cache = recipe.data, folder / "data"
    if not (cache / PROOF).is_file() and kind_of(data) == "text":
        raise FileError(
            f"the data of this run are gone: neither {cache} nor {data.shown_paths} has its token files, "
            "and without them no step can be rebuilt. Put them back where they were."
        )
    return open_source(data, recipe.length, recipe.seed, cache, start=start)


@contextlib.contextmanager
def _isolate(threads: int | None) -> Iterator[None]:
    """In this block torch has the run's number of threads; afterwards threads and RNG state are as before."""
    rng_state, before = rng.get_rng_state(), torch.get_num_threads()
    if threads is not None and 1 <= threads <= 4096:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        rng.set_rng_state(rng_state)
