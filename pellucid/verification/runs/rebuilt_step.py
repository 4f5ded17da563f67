"""One update of a run, rebuilt: every parameter before and after it, its trace and its verdict.

rebuilt = rebuild_step("runs/a", 121)       # in rebuild.py
rebuilt.updates["embed.weight"].new         # the weight after update 121
rebuilt.trace("embed.weight")               # that update on a tape of the specification, for `explain`
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.base.patterns import matches
from pellucid.engine.lora import adapters
from pellucid.explanation.trace import Trace
from pellucid.reference.one_update import (
    UpdateInputs,
    UpdateRule,
    record_initial,
    record_skipped_update,
    record_update,
)
from pellucid.reference.op import Array
from pellucid.training.events import Skipped, Stepped
from pellucid.training.recipe import Recipe
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.run_report import RunReport

Rounding = Callable[[float], Any]
"""The type in which a setting is held: `float`, or a narrower one."""
MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "m", "momentum": "m"}
"""The names of torch's optimizers for their moments, and those of the specification."""


class ParameterUpdate(NamedTuple):
    """One parameter before and after an update, in float64 whatever its type was."""

    type: str
    weight: Array
    new: Array
    gradient: Array | None
    """None where the parameter is not trainable."""
    clipped: Array | None
    moments: dict[str, Array]
    new_moments: dict[str, Array]
    mean: Array | None
    """The running average of the weight."""
    new_mean: Array | None
    updates: int
    """How many updates came before, as the optimizer counts them."""


@dataclass(frozen=True)
class RebuiltStep:
    """One step of a run, computed again."""

    step: int
    start: int
    """The step of the checkpoint from which it was rebuilt; 0: from the initial weights."""
    recipe: Recipe
    event: Stepped | Skipped | None
    """None for step 0, the initial weights."""
    updates: dict[str, ParameterUpdate]
    grad_norms: dict[str, float] = field(default_factory=dict)
    """Of every trainable parameter."""
    saved: Snapshot | None = None
    """The checkpoint of this very step, where there is one."""
    remarks: tuple[str, ...] = ()
    """Where this step differs from the run's, and why that may be."""
    logged: bool = False
    """Whether the log has this step, so that it could be compared."""
    vocabulary: tuple[str, ...] = ()
    device: str = "cpu"

    def trace(self, name: str, rounding: Rounding = float) -> Trace:
        """Returns this update of one parameter on a tape, from the run's numbers before it, with β rounded by
        `rounding`."""
        update, k = self.updates[name], self.step
        labels = {"parameter": list(self.grad_norms), "v": list(self.vocabulary)}
        if self.event is None:
            return Trace(record_initial(name, update.new), labels=labels)
        norms = np.array(list(self.grad_norms.values()))
        before = UpdateInputs(name, k, update.weight, update.gradient, norms, update.moments, update.mean)
        if update.gradient is None or isinstance(self.event, Skipped):
            return Trace(record_skipped_update(before), labels=labels)
        train, optimizer = self.recipe.train, self.recipe.optimizer
        rule, settings = optimizer.rule(name, update.weight.shape, k - 1)
        rate = settings["lr"] * self.recipe.schedule.factor(k - 1, self.recipe.steps_at(k - 1))
        if "betas" in settings:
            betas = tuple(float(rounding(beta)) for beta in settings["betas"])
            settings = settings | {"t": update.updates + 1, "betas": betas}
        how = UpdateRule(rule, settings | {"lr": rate}, train.clip, train.ema)
        return Trace(record_update(before, how), labels=labels)

    def get_recorded(self, name: str) -> dict[str, RecordedValue]:
        """Returns what the run itself computed, under the names of the trace."""
        update, k = self.updates[name], self.step
        moments = {f"{name}.{which}": value for which, value in update.new_moments.items()}
        found = {f"{key}@{k}": value for key, value in {name: update.new, **moments}.items()}
        found |= {f"{name}.{which}@{k - 1}": value for which, value in update.moments.items()}
        for key, value in (
            (f"{name}@{k - 1}", update.weight),
            (f"d.{name}@{k}", update.gradient),
            (f"d.{name}.clipped@{k}", update.clipped),
            (f"{name}.ema@{k - 1}", update.mean),
            (f"{name}.ema@{k}", update.new_mean),
        ):
            if value is not None:
                found[key] = value
        if isinstance(self.event, Stepped):
            found[f"grad_norm@{k}"] = np.array(self.event.grad_norm)
        return {key: RecordedValue(value, update.type) for key, value in found.items()}

    def judge(self, name: str) -> RunReport:
        """Returns whether each number of the update follows from its inputs within rounding.

        Torch's GPU kernel computes 1 − β from a float32 β, which is 16 units off where β is 0.98; so a value
        may follow with either rounding of β.
        """
        narrow = [self._judge_with(name, np.float32)] if self.device == "cuda" else []
        readings = [*narrow, self._judge_with(name, float)]
        fewest = min(readings, key=lambda reading: len(reading.bugs))
        values = zip(*(reading.values for reading in readings), strict=True)
        return replace(fewest, values=tuple(min(same, key=lambda value: value.share) for same in values))

    def _judge_with(self, name: str, rounding: Rounding) -> RunReport:
        trace = self.trace(name, rounding)
        own = {key: value for key, value in self.get_recorded(name).items() if key in trace.tape}
        return judge_run(trace, own, only=f"{name}.m@*" if self.has_bfloat16_muon(name) else f"{name}*")

    def has_bfloat16_muon(self, name: str) -> bool:
        """Returns whether Muon orthogonalized this matrix in bfloat16, as it does on a GPU, with that
        precision."""
        rule, _ = self.recipe.optimizer.rule(name, self.updates[name].weight.shape, self.step - 1)
        return rule == "muon" and self.device == "cuda"

    def why_frozen(self, name: str) -> str:
        """Returns the recipe key that freezes a parameter; empty where it is trainable."""
        return why_frozen(self.recipe, name)

    @property
    def is_exact(self) -> bool:
        """Returns whether this step agrees with the log and with a checkpoint of this step, where there are
        any."""
        return not self.remarks and all(self.matches_checkpoint(name) is not False for name in self.updates)

    def matches_checkpoint(self, name: str) -> bool | None:
        """Returns whether the checkpoint of this step holds the same bits; None where there is none."""
        if self.saved is None or (self.recipe.lora.rank and name not in self.saved.trainable):
            return None  # beside adapters, a checkpoint holds merged weights only
        update, theirs = self.updates[name], {"": self.saved.get_trainable(name)}
        for key, which in MOMENTS.items():
            if f"{name}.{key}" in self.saved.optimizer:
                theirs[which] = self.saved.optimizer[f"{name}.{key}"]
        ours = {"": update.new, **update.new_moments}
        if update.new_mean is not None:
            ours["ema"], theirs["ema"] = update.new_mean, self.saved.get_average(name)
        return ours.keys() == theirs.keys() and all(
            np.array_equal(ours[key], to_float64(theirs[key]), equal_nan=True) for key in ours
        )


def to_float64(tensor: Tensor) -> Array:
    """Returns a copy in float64, which holds every narrower number exactly."""
    return tensor.detach().to("cpu", torch.float64, copy=True).numpy()


def why_frozen(recipe: Recipe, name: str) -> str:
    """Returns the recipe key that freezes a parameter; empty where it is trainable."""
    train = recipe.train
    if recipe.lora.rank and not adapters({name: name}):
        return f"lora.rank = {recipe.lora.rank}, and only adapters are trained"
    if matches(name, train.freeze):
        return f"train.freeze = {list(train.freeze)}"
    if train.only and not matches(name, train.only):
        return f"train.only = {list(train.only)}"
    return ""
