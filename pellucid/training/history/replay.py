"""Any step of a run, made again to the bit, and each weight's update taken apart.

    done = replayed("runs/a", 121)
    done.kept["embed.weight"].new            # what the run had after update 121
    done.trace("embed.weight")               # that update on a tape of the specification, for `explain`

The run's own trainer goes on from the nearest earlier checkpoint, or from the beginning where none is
earlier; the last step is made with its parts kept. Nothing is written into the run's folder, so this works
while the run is going on.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.sources.encoding import PROOF
from pellucid.data.sources.source import Source, kind_of, open_source
from pellucid.errors import AddressError, FileError, UsageError, did_you_mean
from pellucid.explain.trace import Trace
from pellucid.judge.judge_run import judge_run
from pellucid.judge.recorded import RecordedValue
from pellucid.judge.run_report import RunReport
from pellucid.model.lora import adapters
from pellucid.pretrained import Pretrained
from pellucid.reference.one_update import LENGTHS, Before, Rule, beginning, no_update, one_update
from pellucid.reference.op import Array
from pellucid.training import determinism
from pellucid.training.events import Skipped, Stepped
from pellucid.training.history.log import Line, read
from pellucid.training.loop import Trainer
from pellucid.training.recipe import Recipe
from pellucid.training.saving import checkpoint, randomness
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.saving.environment import differences, environment
from pellucid.training.saving.manifest import name_of, step_of
from pellucid.training.saving.run_folder import LOG, RECIPE, RunFolder
from pellucid.training.start import base_model_for_resume, resolve_recipe, shapes_of

Held = Callable[[float], Any]
"""How a setting is held: `float`, or a narrower type."""
Tell = Callable[[int, int], None]
"""Told of each step that is made again, and of the last one."""
MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "m", "momentum": "m"}
"""What optimizers call what they remember, and what the specification calls it."""
FIGURES = ("loss", "lr", "grad_norm")
"""Of a logged step, those that a replay has as well."""


class Kept(NamedTuple):
    """One parameter before and after an update, in float64 whatever its type was."""

    type: str
    weight: Array
    new: Array
    gradient: Array | None
    """None where the parameter does not learn."""
    clipped: Array | None
    moments: dict[str, Array]
    new_moments: dict[str, Array]
    mean: Array | None
    new_mean: Array | None
    updates: int
    """How many there were before this one, as its optimizer counts them."""


@dataclass(frozen=True)
class Replayed:
    """One step of a run, made again."""

    step: int
    start: int
    """The step of the checkpoint that it was made from; 0: from the beginning."""
    recipe: Recipe
    event: Stepped | Skipped | None
    """None for step 0, which no update made."""
    kept: dict[str, Kept]
    lengths: dict[str, float] = field(default_factory=dict)
    """Of the gradient of every parameter that learns."""
    saved: Snapshot | None = None
    """The checkpoint of this very step, where there is one."""
    remarks: tuple[str, ...] = ()
    """Where this is not the run, and why that may be."""
    logged: bool = False
    """Whether the log has this step, so that it could be compared."""
    vocabulary: tuple[str, ...] = ()
    device: str = "cpu"

    def trace(self, name: str, held: Held = float) -> Trace:
        """This update of one parameter on a tape, from the run's own numbers before it, with β as the type
        `held` holds it."""
        kept, k = self.kept[name], self.step
        labels = {"parameter": list(self.lengths), "v": list(self.vocabulary)}
        if self.event is None:
            return Trace(beginning(name, kept.new), labels=labels)
        lengths = np.array(list(self.lengths.values()))
        before = Before(name, k, kept.weight, kept.gradient, lengths, kept.moments, kept.mean)
        if kept.gradient is None or isinstance(self.event, Skipped):
            return Trace(no_update(before), labels=labels)
        train, optimizer = self.recipe.train, self.recipe.optimizer
        rule, settings = optimizer.rule(name, kept.weight.shape, k - 1)
        rate = settings["lr"] * self.recipe.schedule.factor(k - 1, self.recipe.steps_at(k - 1))
        if "betas" in settings:
            betas = tuple(float(held(beta)) for beta in settings["betas"])
            settings = settings | {"t": kept.updates + 1, "betas": betas}
        how = Rule(rule, settings | {"lr": rate}, train.clip, train.ema)
        return Trace(one_update(before, how), labels=labels)

    def own(self, name: str) -> dict[str, RecordedValue]:
        """What the fast engine itself has, under the names of the trace."""
        kept, k = self.kept[name], self.step
        moments = {f"{name}.{which}": value for which, value in kept.new_moments.items()}
        found = {f"{called}@{k}": value for called, value in {name: kept.new, **moments}.items()}
        found |= {f"{name}.{which}@{k - 1}": value for which, value in kept.moments.items()}
        for called, value in (
            (f"{name}@{k - 1}", kept.weight),
            (f"d.{name}@{k}", kept.gradient),
            (f"d.{name}.clipped@{k}", kept.clipped),
            (f"{name}.ema@{k - 1}", kept.mean),
            (f"{name}.ema@{k}", kept.new_mean),
        ):
            if value is not None:
                found[called] = value
        if isinstance(self.event, Stepped):
            found[f"grad_norm@{k}"] = np.array(self.event.grad_norm)
        return {called: RecordedValue(value, kept.type) for called, value in found.items()}

    def judged(self, name: str) -> RunReport:
        """Whether each number of the update follows from those before it, as closely as its type can hold.

        Torch's kernel for a GPU takes 1 − β from a β in float32, which is 16 units off where β is 0.98; so a
        value may follow with β held either way.
        """
        narrow = [self._judged(name, np.float32)] if self.device == "cuda" else []
        readings = [*narrow, self._judged(name, float)]
        fewest = min(readings, key=lambda reading: len(reading.bugs))
        values = zip(*(reading.values for reading in readings), strict=True)
        return replace(fewest, values=tuple(min(same, key=lambda value: value.share) for same in values))

    def _judged(self, name: str, held: Held) -> RunReport:
        trace = self.trace(name, held)
        own = {called: value for called, value in self.own(name).items() if called in trace.tape}
        return judge_run(trace, own, only=f"{name}.m@*" if self.turned_narrowly(name) else f"{name}*")

    def turned_narrowly(self, name: str) -> bool:
        """Whether Muon turned this matrix in bfloat16, as it does on a GPU: its new value is as coarse."""
        rule, _ = self.recipe.optimizer.rule(name, self.kept[name].weight.shape, self.step - 1)
        return rule == "muon" and self.device == "cuda"

    def why_not(self, name: str) -> str:
        """Which key of the recipe keeps a parameter from learning; empty where it learns."""
        return why_not(self.recipe, name)

    @property
    def exact(self) -> bool:
        """Whether all that is known of the run is as it is here: its log, and a checkpoint of this step."""
        return not self.remarks and all(self.as_saved(name) is not False for name in self.kept)

    def as_saved(self, name: str) -> bool | None:
        """Whether the checkpoint of this step holds the same bits; None where there is none."""
        if self.saved is None or (self.recipe.lora.rank and name not in self.saved.raw):
            return None  # of what adapters adapt, a checkpoint holds the sum alone
        theirs = {"": self.saved.left(name)}
        for key, which in MOMENTS.items():
            if f"{name}.{key}" in self.saved.optimizer:
                theirs[which] = self.saved.optimizer[f"{name}.{key}"]
        if self.kept[name].new_mean is not None:
            theirs["ema"] = self.saved.averaged(name)
        kept = self.kept[name]
        ours = {"": kept.new, **kept.new_moments} | ({} if kept.new_mean is None else {"ema": kept.new_mean})
        return ours.keys() == theirs.keys() and all(
            np.array_equal(ours[key], _array(theirs[key]), equal_nan=True) for key in ours
        )


class Replaying(Trainer):
    """A trainer that keeps, of one step, what it reads and what it makes."""

    keeping = False

    def _norm(self) -> Tensor:
        if self.keeping:
            self.slopes = {n: _array(p.grad) for n, p in self.weights.learning.items() if p.grad is not None}
        return super()._norm()

    def _clip(self, norm: Tensor, finite: Tensor) -> None:
        super()._clip(norm, finite)
        if self.keeping:
            named = self.weights.learning
            self.clipped = {n: _array(p.grad) for n, p in named.items() if p.grad is not None}

    def kept_step(self, names: Sequence[str]) -> tuple[Stepped | Skipped, dict[str, Kept], dict[str, float]]:
        """One step: what happened, these parameters around it, and how long every gradient was."""
        self.keeping, self.slopes, self.clipped = True, {}, {}
        before, moments, means = self._now(names)
        counts = {name: self._count(name) for name in names}
        event = self.step()
        after, new_moments, new_means = self._now(names)
        kept = {
            name: Kept(
                str(self.weights.named[name].dtype).removeprefix("torch."), before[name], after[name],
                self.slopes.get(name), self.clipped.get(name), moments[name], new_moments[name],
                means.get(name), new_means.get(name), counts[name],
            )
            for name in names
        }  # fmt: skip
        lengths = {name: math.sqrt(float(np.square(slope).sum())) for name, slope in self.slopes.items()}
        return event, kept, lengths

    def _now(
        self, names: Sequence[str]
    ) -> tuple[dict[str, Array], dict[str, dict[str, Array]], dict[str, Array]]:
        """Weights, moments and running means."""
        named, mean = self.weights.named, self.average.mean
        return (
            {name: _array(named[name]) for name in names},
            {name: self._moments(name) for name in names},
            {name: _array(mean[name]) for name in names if name in mean},
        )

    def _moments(self, name: str) -> dict[str, Array]:
        own = self.optimizer.state.get(self.weights.named[name], {})
        return {MOMENTS[key]: _array(value) for key, value in own.items() if key in MOMENTS}

    def _count(self, name: str) -> int:
        own = self.optimizer.state.get(self.weights.named[name], {})
        return int(own.get("step", 0))


class Past:
    """A run that was begun, and may be asked about any of its steps."""

    def __init__(self, path: str | Path, raw_tokens: bool = False) -> None:
        self.folder, self.raw_tokens = RunFolder(path), raw_tokens
        if not (self.folder.path / RECIPE).is_file():
            raise UsageError(f"there is no run at {path}: it has no {RECIPE}.")
        self.recipe = Recipe.from_dict(self.folder.recipe())
        self.start = base_model_for_resume(self.recipe, self.folder.newest()[0])
        self.source = _source(self.recipe, self.folder.path, self.start)
        self.shapes = shapes_of(self.recipe, self.start, self.source.tokenizer.vocab_size)
        log = self.folder.path / LOG
        self.lines = read(log) if log.exists() else []

    @property
    def parameters(self) -> list[str]:
        return list(self.shapes)

    @property
    def reached(self) -> int:
        """How many steps the run has made."""
        logged = [int(line["step"]) for line in self.lines if isinstance(line.get("step"), int)]
        return max(self.folder.status().step, *logged, 0)

    def parameter(self, called: str) -> str:
        """The parameter that a name without its @k speaks of; of what all share, the first that learns."""
        base = called.removeprefix("d.")
        if base in ("grad_norm", "clip", LENGTHS):
            return next(name for name in self.parameters if not self.why_not(name))
        owners = [name for name in self.parameters if base == name or base.startswith(f"{name}.")]
        if not owners:
            raise AddressError(
                f"no parameter called {base!r} in this run.{did_you_mean(base, self.parameters, 3)}"
            )
        return max(owners, key=len)

    def why_not(self, name: str) -> str:
        """Which key of the recipe keeps a parameter from learning; empty where it learns."""
        return why_not(self.recipe, name)

    def need(self, k: int) -> None:
        """Refuse a step that the run has not made."""
        if not 0 <= k <= self.reached:
            raise UsageError(
                f"{self.folder.path} has made {self.reached:,} of {self.recipe.steps:,} updates, so there is "
                f"nothing at {k:,}: ask for @{self.reached} or an earlier one."
            )

    def outline(self, name: str, k: int) -> Trace:
        """The names and shapes of an update, without its numbers."""
        nothing = np.zeros(self.shapes[name])
        mean = nothing if self.recipe.train.ema else None
        slope = None if self.why_not(name) else nothing
        kept = Kept("float64", nothing, nothing, slope, slope, {}, {}, mean, mean, 0)
        event = Stepped(k, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0) if k else None
        return Replayed(
            k, 0, self.recipe, event, {name: kept}, {name: 0.0}, vocabulary=self._vocabulary()
        ).trace(name)

    def step(self, k: int, only: Sequence[str] = ("*",), tell: Tell = lambda at, of: None) -> Replayed:
        """Step k made again, with the parameters kept whose names fit one of the patterns."""
        self.need(k)
        names = [name for name in self.parameters if any(fnmatchcase(name, pattern) for pattern in only)]
        snapshot, theirs = self._start(k - 1)
        threads = theirs.get("threads")
        with _aside(threads if type(threads) is int else None):
            base = self.start if snapshot is not None else resolve_recipe(self.recipe)[1]
            trainer = Replaying(self.recipe, self.source, base)
            trainer.recorder.every = 0
            with determinism.switched(trainer.deterministic), contextlib.closing(trainer.loader):
                if snapshot is not None:
                    trainer.restore(snapshot)
                start = trainer.at
                if k == 0:
                    return self._begun(trainer, names)
                while trainer.at < k - 1:
                    trainer.step()
                    tell(trainer.at, k)
                event, kept, lengths = trainer.kept_step(names)
            now = environment(trainer.compiled, trainer.device)
        logged = self._logged(event)
        remarks = tuple(_other_figures(event, logged)) if logged else ()
        done = Replayed(
            k, start, self.recipe, event, kept, lengths, self._saved(k), remarks, bool(logged),
            self._vocabulary(), trainer.device.type,
        )  # fmt: skip
        return done if done.exact else replace(done, remarks=(*remarks, *differences(theirs, now)))

    def _begun(self, trainer: "Replaying", names: Sequence[str]) -> Replayed:
        """Step 0, which no update made."""
        kept = {}
        for name in names:
            weight = _array(trainer.weights.named[name])
            kept[name] = Kept("float64", weight, weight, None, None, {}, {}, None, None, 0)
        return Replayed(0, 0, self.recipe, None, kept, vocabulary=self._vocabulary())

    def _vocabulary(self) -> tuple[str, ...]:
        tokenizer = self.source.tokenizer
        text = tokenizer.token if self.raw_tokens else tokenizer.visible
        return tuple(map(text, range(tokenizer.vocab_size)))

    def _start(self, most: int) -> tuple[Snapshot | None, dict[str, object]]:
        """The newest complete checkpoint up to a step, and what the bits of the run depend on."""
        while True:
            found, _ = self.folder.newest(most)
            try:
                if found is not None:
                    return checkpoint.read_checked(found), checkpoint.environment_of(found)
                later, _ = self.folder.newest()
                return None, checkpoint.environment_of(later) if later else {}
            except FileError:  # a run that is going on has removed it in this moment
                if found is not None:
                    most = (step_of(found.name) or 0) - 1

    def _saved(self, k: int) -> Snapshot | None:
        try:
            return checkpoint.read(self.folder.checkpoints / name_of(k))
        except FileError:
            return None

    def _logged(self, event: Stepped | Skipped) -> Line:
        """What the log has of this step; an empty line where it has none."""
        found = (line for line in reversed(self.lines) if line.get("step") == event.step)
        return next((line for line in found if line["kind"] in ("step", "skipped")), {})


def _other_figures(event: Stepped | Skipped, logged: Line) -> Iterator[str]:
    """Where the log says otherwise: never in silence."""
    if (logged["kind"] == "skipped") != isinstance(event, Skipped):
        told = "skipped" if logged["kind"] == "skipped" else "made"
        yield f"by the log, update {event.step} was {told}; here it is not"
    elif isinstance(event, Stepped):
        for key in FIGURES:
            if logged.get(key) != getattr(event, key):
                yield f"{key} is {getattr(event, key)!r} here, and {logged.get(key)!r} in the log"


def replayed(
    folder: str | Path, step: int, only: Sequence[str] = ("*",), tell: Tell = lambda at, of: None
) -> Replayed:
    """One step of a run made again, with the parameters kept whose names fit one of the patterns."""
    return Past(folder).step(step, only, tell)


def why_not(recipe: Recipe, name: str) -> str:
    """Which key of a recipe keeps a parameter from learning; empty where it learns."""
    train = recipe.train
    if recipe.lora.rank and not adapters({name: name}):
        return f"lora.rank = {recipe.lora.rank}, and only adapters learn"
    if any(fnmatchcase(name, pattern) for pattern in train.freeze):
        return f"train.freeze = {list(train.freeze)}"
    if train.only and not any(fnmatchcase(name, pattern) for pattern in train.only):
        return f"train.only = {list(train.only)}"
    return ""


def _source(recipe: Recipe, folder: Path, start: Pretrained | None) -> Source:
    """The run's data, as they were made when it began; nothing is made anew."""
    data, cache = recipe.data, folder / "data"
    if not (cache / PROOF).is_file() and kind_of(data) == "text":
        raise FileError(
            f"the data of this run are gone: neither {cache} nor {data.shown_paths} has its token files, "
            "and without them no step can be made again. Put them back where they were."
        )
    return open_source(data, recipe.length, recipe.seed, cache, start=start)


@contextlib.contextmanager
def _aside(threads: int | None) -> Iterator[None]:
    """In this block there are as many threads as the run had; afterwards dice and threads are as before."""
    dice, before = randomness.state(), torch.get_num_threads()
    if threads is not None and 1 <= threads <= 4096:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        randomness.restore(dice)


def _array(tensor: Tensor | None) -> Array:
    """A copy, in float64: every narrower number is one of those."""
    assert tensor is not None
    return tensor.detach().to("cpu", torch.float64, copy=True).numpy()
