"""A run that is verified: one of its steps, replayed from a checkpoint with everything that it computed."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from pellucid.base.errors import PellucidError
from pellucid.base.formatting import pluralize
from pellucid.base.lora import A, B, merge
from pellucid.engine.lora import adapters
from pellucid.formats.checkpoint_manifest import parse_step
from pellucid.reference.op import Array
from pellucid.training.events import Stepped
from pellucid.training.history.log import Line
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.saving.environment import compare_environments, get_environment
from pellucid.training.start import resolve_recipe
from pellucid.training.state import TrainState
from pellucid.training.step import train_step
from pellucid.verification.checks.check import Check
from pellucid.verification.checks.training import gradient_reference
from pellucid.verification.checks.training.batch_gradients import Problem
from pellucid.verification.checks.training.gradient_reference import Reference, compute_reference
from pellucid.verification.checks.training.replayed_step import (
    KEEP,
    LossRecorder,
    MicroBatch,
    Pass,
    StepRecorder,
    get_dropout_rates,
)
from pellucid.verification.runs.rebuild import PastRun, UpdateRecorder
from pellucid.verification.runs.rebuilt_step import RebuiltStep, to_float64
from pellucid.verification.verdict import Finding, Verdict

FAST_COST, QUICK_COST = 5e11, 5e10
"""Tokens × parameters up to which the fast engine computes the gradients of all rows in float64: minutes, or
with `quick` about ten seconds. Beyond, a pass over fewer rows is judged."""
UPDATE_NUMBERS = 4e7
"""The most numbers of parameters whose updates are judged."""
MAX_SKIPPED = 4
"""Steps without a finite gradient after which no further one is tried."""


class ReplayedStep(NamedTuple):
    """A replayed step, and what it was computed with."""

    rebuilt: RebuiltStep
    recorder: StepRecorder
    micro_batches: list[MicroBatch]
    keep: dict[str, Array]
    """The dropout masks, where they could be recorded."""
    has_drawn: bool
    """Whether its forward pass drew random numbers, where it has dropout."""
    start: int
    """The step of the checkpoint; 0: the beginning of the run."""
    earlier_micro_batches: list[MicroBatch]
    """Those of the step before it, where there is one."""
    rates: dict[str, float]
    """The rate of each value with dropout."""
    unrestored: str
    """The first weight, moment or average that is not the checkpoint's; empty where all are."""
    state: TrainState
    environment: list[str]
    """Why the step need not be the run's to the bit: what differs from the machine of the run."""

    @property
    def step(self) -> int:
        return self.rebuilt.step

    @property
    def event(self) -> Stepped:
        assert isinstance(self.rebuilt.event, Stepped)
        return self.rebuilt.event

    @property
    def dtype(self) -> str:
        """The type in which the step computes: that of its matrix products."""
        return self.state.dtype


class NoStep(Exception):
    """Raised where no step from the checkpoint on has a finite gradient."""


class RunSubject:
    """A run that is verified; `step` is the step to judge, None for the second one after a checkpoint."""

    def __init__(self, path: str | Path, step: int | None = None, quick: bool = False) -> None:
        self.past, self.asked, self.quick = PastRun(path), step, quick
        if step is not None:
            self.past.check_step(step)

    def attempt(self, check: "Check[RunSubject]") -> Finding:
        """Measures the claim of a check, where there is the step that it is of."""
        try:
            return check.measure(self)
        except NoStep:
            return Finding(Verdict.SKIPPED, "no step from the checkpoint on has a finite gradient")

    @property
    def replay(self) -> ReplayedStep:
        """The judged step and the one before it."""
        if self._replay is None:
            raise NoStep
        return self._replay

    @cached_property
    def _replay(self) -> ReplayedStep | None:
        most, last = self._choose_step()
        with self.past.open_state(most) as (state, snapshot, environment):
            unrestored = "" if snapshot is None else find_unrestored(state, snapshot)
            start, earlier = state.meters.step, LossRecorder()
            while state.meters.step < last - 1:
                train_step(state, [earlier] if state.meters.step == last - 2 else [])
            for _ in range(1 if self.asked else MAX_SKIPPED):
                made = self._record_step(state, bool(earlier.micro_batches) and earlier.knows_masks)
                if isinstance(made[0].event, Stepped):
                    break
            else:
                return None
            own = get_environment(state.compiled, state.device)
        differences = compare_environments(environment, own) if environment else []
        return ReplayedStep(
            *made, start, earlier.micro_batches, get_dropout_rates(state), unrestored, state, differences
        )  # fmt: skip

    def _record_step(
        self, state: TrainState, knows_masks: bool
    ) -> tuple[RebuiltStep, StepRecorder, list[MicroBatch], dict[str, Array], bool]:
        """Makes the next step and keeps all of it."""
        rows = self._rows_apart(state, knows_masks)
        recorder, losses = StepRecorder(rows), LossRecorder()
        updates = UpdateRecorder(self._updated_names(state))
        event = train_step(state, [recorder, losses, updates])
        norms = {name: float(grad.double().norm()) for name, grad in recorder.grads.items()}
        rebuilt = RebuiltStep(
            event.step, 0, self.past.recipe, event, updates.updates(state), norms, device=state.device.type
        )
        return rebuilt, recorder, losses.micro_batches, losses.keep, losses.has_drawn

    def _rows_apart(self, state: TrainState, knows_masks: bool) -> int | None:
        """Returns how many rows of each micro-batch a pass of its own has; None where the step itself can be
        judged: its batch is not too large, and where it has dropout, the specification can take its masks."""
        recipe, parts = self.past.recipe, self.past.recipe.train.accumulate
        cost = sum(weight.numel() for weight in state.weights.named.values()) * recipe.length
        most = int((QUICK_COST if self.quick else FAST_COST) / cost)
        if most < recipe.data.batch_size:
            return max(1, most // parts)
        takes_masks = knows_masks and recipe.data.batch_size * cost <= gradient_reference.SPECIFICATION_COST
        return None if takes_masks or not get_dropout_rates(state) else recipe.data.batch_size // parts

    def _updated_names(self, state: TrainState) -> list[str]:
        """Returns the parameters whose updates are judged: all, or as many as the bound allows, first one of
        each kind."""
        sizes = {name: weight.numel() for name, weight in state.weights.named.items()}
        kinds = Counter[str]()
        order = dict[str, tuple[int, int]]()
        for name, size in sizes.items():
            kind = re.sub(r"\.\d+\.", ".", name)
            order[name] = kinds[kind], size
            kinds[kind] += 1
        chosen, total = set[str](), 0
        for name in sorted(sizes, key=lambda name: order[name]):
            if total + sizes[name] <= UPDATE_NUMBERS:
                chosen.add(name)
                total += sizes[name]
        return [name for name in sizes if name in chosen]

    def _choose_step(self) -> tuple[int, int]:
        """Returns up to which step a checkpoint may be, and the step to judge.

        It is the second step after the newest checkpoint that two logged steps follow; else step 2, from the
        beginning of the run; else the second step that the run would make next.
        """
        if self.asked is not None:
            return max(0, self.asked - 2), self.asked
        folder = self.past.folder
        logged = max((line["step"] for line in self.past.lines if line.get("kind") == "step"), default=0)
        found = folder.find_newest(logged - 2)[0] if logged > 2 else None
        if found is None and not can_begin(self.past):
            found = folder.find_newest()[0]
        start = (parse_step(found.name) or 0) if found is not None else 0
        return start, start + 2

    @property
    def logged(self) -> Line:
        """The log's line of the judged step; empty where there is none, or where it need not be equal."""
        replay = self.replay
        return {} if replay.environment else self.past.find_logged(replay.step)

    @cached_property
    def problem(self) -> Problem:
        """All that determines the loss and the gradients of the judged pass, for the specification."""
        replay = self.replay
        train, state = self.past.recipe.train, replay.state
        classes = None if state.class_weights is None else state.class_weights.numpy()
        rates = {f"{name}{KEEP}": rate for name, rate in replay.rates.items()}
        # A mask says what was dropped; what a kept number is multiplied by follows from the rate.
        is_own = replay.recorder.judged is None
        keep = {name: (m != 0) / (1 - rates[name]) for name, m in replay.keep.items() if is_own}
        weights = {name: to_float64(value) for name, value in replay.recorder.weights.items()}
        scale = self.past.recipe.lora.scale
        return Problem(
            state.model.config, merge_adapters(weights, scale), self.judged.rows, train.label_smoothing,
            train.z_loss, classes, keep, adapters(weights), scale,
        )  # fmt: skip

    @cached_property
    def reference(self) -> Reference:
        """The loss and the gradients that the judged pass must have."""
        replay = self.replay
        return compute_reference(self.problem, replay.dtype, replay.state.device)

    def confirm(self, judge: Callable[[], Finding]) -> Finding:
        """Returns what a judgement by the reference finds; a bug only where it is one by more samples of what
        rounding does, too, and where rounding does not decide the result."""
        found = judge()
        if found.verdict is Verdict.BUG and len(self.reference.samples) == 1:
            self.reference = self.reference.resample()
            found = judge()
        if found.verdict is Verdict.BUG and (why := self.reference.why_undecided):
            return Finding(Verdict.UNKNOWN, why)
        return found

    @property
    def how(self) -> str:
        """The step and rows that were judged, and by what: for messages."""
        replay = self.replay
        which, rows = f"step {replay.step}", self.judged.rows.ids
        if replay.recorder.judged is not None:
            which = f"{pluralize(len(rows), 'row')} of step {replay.step}" + ", without dropout" * bool(
                replay.rates
            )
        elif replay.rates:
            which += ", with its dropout masks"
        return f"{which}, {self.reference.how}"

    @property
    def trainable(self) -> list[str]:
        """The names of the parameters that the recipe trains."""
        return [name for name in self.past.parameters if not self.past.why_frozen(name)]

    @property
    def judged(self) -> Pass:
        """The rows, loss and gradients that are judged: those of the step, or of the pass of its own."""
        replay = self.replay
        recorder = replay.recorder
        return recorder.judged or Pass(recorder.batch.batch, replay.event.loss, recorder.grads)


def find_unrestored(state: TrainState, snapshot: Snapshot) -> str:
    """Returns the first parameter, moment or average that is not, bit for bit, what the checkpoint holds."""
    for name, parameter in state.weights.named.items():
        is_saved = not state.base_fingerprint or name in snapshot.trainable  # beside adapters, W is not
        if is_saved and not _is_same(parameter, snapshot.get_trainable(name)):
            return name
        if name in state.average.mean and not _is_same(state.average.mean[name], snapshot.get_average(name)):
            return f"{name}.ema"
        for key, value in state.optimizer.state.get(parameter, {}).items():
            full = f"{name}.{key}"
            if isinstance(value, torch.Tensor) and not (
                full in snapshot.optimizer and _is_same(value, snapshot.optimizer[full])
            ):
                return full
    return ""


def _is_same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return np.array_equal(to_float64(ours), to_float64(theirs), equal_nan=True)


def merge_adapters(weights: Mapping[str, Array], scale: float) -> dict[str, Array]:
    """Returns the weights of the model, those with an adapter as W + s B A."""
    merged = {name: value for name, value in weights.items() if not name.endswith((A, B))}
    for path in (name.removesuffix(A) for name in weights if name.endswith(A)):
        merged[f"{path}.weight"] = merge(
            weights[f"{path}.weight"], weights[path + A], weights[path + B], scale
        )
    return merged


def can_begin(past: PastRun) -> bool:
    """Returns whether the model that the run began with can be made again."""
    try:
        resolve_recipe(past.recipe)
    except PellucidError:
        return False
    return True
