"""The loop: batch, forward, loss, backward, clip, update, log; again.

    trainer = Trainer(recipe, source)
    trainer.step()                      # one update, from a test or a notebook
    for event in trainer.run(): …       # all of them, with evaluations and checkpoints

All that a run is at one moment is in `snapshot()`, and `restore` goes on from it bit for bit.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.cost import FORWARD_BACKWARD, FROZEN_WEIGHTS, count_flops_per_token
from pellucid.data.loader import DataLoader
from pellucid.data.sources.source import Source
from pellucid.errors import ConfigError, UsageError
from pellucid.evaluation.validation import judge, sample
from pellucid.model import lora
from pellucid.names import IGNORE_INDEX
from pellucid.pretrained import Pretrained
from pellucid.training import compiling, determinism, optimizers
from pellucid.training.average import Average
from pellucid.training.distributed import parallel
from pellucid.training.distributed.pieces import fill, local, whole
from pellucid.training.distributed.ranks import ALONE, Ranks
from pellucid.training.events import Ended, Evaluated, Event, Saved, Skipped, Started, Stepped
from pellucid.training.feed import Fed, Feed
from pellucid.training.history import not_finite
from pellucid.training.history.recorder import Recorder
from pellucid.training.objective import Objective
from pellucid.training.recipe import Recipe
from pellucid.training.saving import randomness
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.start import adapter, init_model, need_base
from pellucid.training.weights import Weights

SMOOTH = 0.95
"""How much of the smoothed loss is its past."""
BAD_IN_A_ROW = 5
"""So many steps without a finite gradient, one after the other, end a run."""
SAVE = "save"
"""What ranks agree on where the clock says that a checkpoint is due."""


class Trainer:
    def __init__(
        self, recipe: Recipe, source: Source, start: Pretrained | None = None, ranks: Ranks = ALONE
    ) -> None:
        determinism.prepare(recipe.train.threads)
        self.recipe, self.source, self.start, self.ranks = recipe, source, start, ranks
        self.device = self.ranks.device(device_of(recipe.train.device))
        self.ranks.connect(self.device, recipe.train.timeout)
        self.dtype = dtype_on(self.device, recipe.train.dtype, recipe.train.weights)
        vocab_size = source.tokenizer.vocab_size
        self.model = init_model(recipe, start, vocab_size, self.device, self._type()).train()
        self.base = lora.fingerprint(self.model.named_parameters()) if recipe.lora.rank else ""
        """Which model it is that adapters adapt."""
        randomness.seed(recipe.seed, self.ranks.rank)
        self.objective = Objective(self.model, recipe.train, self.dtype)
        self.shared = parallel.shared(self.objective, recipe.train.parallel, self.ranks)
        self.weights = Weights(self.model, recipe.train.only, recipe.train.freeze)
        self.optimizer = optimizers.make(self.weights.learning, recipe.optimizer)
        self.average = Average(self.weights.learning, recipe.train.ema)
        rows = rows_of_a_rank(recipe, self.ranks.world)
        self.loader = DataLoader(source.train, rows, self.ranks.rank, self.ranks.world)
        self.feed = Feed(self.loader, self.device)
        self.recorder = Recorder(recipe.train.record_every, self.weights, self.objective, self.shared)
        sharded = isinstance(self.shared, parallel.Sharded)
        loss, self.compiled = compiling.chosen(self.objective, recipe, self.device, sharded)
        self.loss = self.shared.joined(loss, self.device, self.deterministic)
        self.at, self.tokens, self.seconds, self.bad = 0, 0, 0.0, 0
        self.bad_allowed = 1 if recipe.train.on_nonfinite == "stop" else BAD_IN_A_ROW
        self.smoothed = self.best = math.nan
        self.without_progress = 0
        passes = FROZEN_WEIGHTS if recipe.lora.rank else FORWARD_BACKWARD
        self.work = count_flops_per_token(self.model.config, recipe.length, passes)
        """Operations for each token."""
        self._read = 0
        """Tokens of the last batch, over all ranks: rows of conversations are as wide as the longest."""
        self.wanted = ""
        """Why the run should end, once somebody wants it to."""

    def _type(self) -> torch.dtype:
        """Of the model's weights: float32, unless others are asked for."""
        if self.dtype == "float64":
            return torch.float64
        return torch.bfloat16 if self.recipe.train.weights == "bfloat16" else torch.float32

    @property
    def deterministic(self) -> bool:
        """The same bits in every run: always on a CPU, on a GPU where it is asked for."""
        wanted = self.recipe.train.deterministic
        return self.device.type == "cpu" if wanted == "auto" else wanted is True

    # ---- one step

    def step(self) -> Stepped | Skipped:
        """One update of the weights."""
        begun = time.perf_counter()
        rate = self._set_rate()
        fed, dice = self.feed.next(), randomness.torch_dice(self.device)
        loss, length = self._backward(fed), self._norm()
        finite = loss.isfinite() & length.isfinite()
        with self.recorder.around(self.at + 1, fed.batch, finite):
            self._clip(length, finite)
            optimizers.update(self.optimizer, finite)
            self.weights.spread()
        memory = _memory(self.device)
        self.feed.ahead()
        total, norm = torch.stack([loss, length]).tolist()  # only now does anybody wait for the device
        good = math.isfinite(total) and math.isfinite(norm)
        bad = None if good else not_finite.located(self, fed, dice, total)
        if good:
            self.average.update()
        self.weights.forget()
        self.at += 1
        self.tokens += self._read
        seconds = time.perf_counter() - begun
        self.seconds += seconds
        if bad:
            self.bad += 1
            return Skipped(self.at, *bad)
        self.bad = 0
        self.smoothed = total if math.isnan(self.smoothed) else SMOOTH * self.smoothed + (1 - SMOOTH) * total
        speed = self._read / seconds
        return Stepped(self.at, total, self.smoothed, rate, norm, self.tokens, speed, self.seconds, memory)

    def _backward(self, fed: Fed) -> Tensor:
        """The mean loss over all counted targets, and its gradients, micro-batch by micro-batch.

        Each part's mean counts as much as it has targets, so that the sum is the mean over the whole batch,
        that of all ranks, however the ignored ones are spread.
        """
        parts = self.recipe.train.accumulate
        counts = [int((part != IGNORE_INDEX).sum()) for part in np.array_split(fed.batch.targets, parts)]
        in_all, self._read = map(int, self.ranks.total(sum(counts), fed.batch.ids.size))
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        pieces = zip(fed.ids.chunk(parts), fed.targets.chunk(parts), counts, range(1, parts + 1), strict=True)
        for some, wanted, count, number in pieces:
            with self.shared.sending(number == parts or bool(self.weights.narrow)):
                part = self.loss(some, wanted) * (count / max(in_all, 1))
                (part * self.shared.factor).backward()
            self.weights.collect()
            total += part.detach()
        return self.ranks.sum(total)

    def _norm(self) -> Tensor:
        """The length of all gradients as one vector."""
        return whole(nn.utils.get_total_norm(self._slopes()))

    def _clip(self, norm: Tensor, finite: Tensor) -> None:
        """Shorten the gradients to the limit, where they are longer."""
        if limit := self.recipe.train.clip:
            shorter = torch.where(finite, limit / norm, 1.0).clamp(max=1.0)
            torch._foreach_mul_([local(slope) for slope in self._slopes()], shorter)

    def _slopes(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.weights.learning.values() if parameter.grad is not None]

    def _set_rate(self) -> float:
        factor = self.recipe.schedule.factor(self.at, self.recipe.steps_at(self.at))
        optimizers.set_rate(self.optimizer, factor)
        optimizers.set_step(self.optimizer, self.recipe.optimizer, self.at)
        return float(self.recipe.optimizer.lr * factor)

    # ---- the whole run

    def run(self, save: Callable[[], Saved] | None = None) -> Iterator[Event]:
        """Steps until the recipe's end, or until `wanted` says why not; evaluated and saved on the way."""
        with determinism.switched(self.deterministic), contextlib.closing(self.loader):
            yield self.started()
            why, begun, saved, clock = "finished", self.at, -1, time.monotonic()
            limit = (self.recipe.checkpoint.minutes * 60 or math.inf) if save else math.inf
            while self.at < self.recipe.steps:
                new = self.at not in (begun, saved)
                asked = self._asked(new and time.monotonic() - clock > limit)
                if save and asked == SAVE:
                    yield save()
                    saved, clock = self.at, time.monotonic()
                    continue  # an end may have been asked for meanwhile
                if asked:
                    break
                event = self.step()
                yield event
                if recorded := self.recorder.taken():
                    yield recorded
                if isinstance(event, Skipped) and self.bad >= self.bad_allowed:
                    row = f"{self.bad} steps in a row" if self.bad > 1 else f"step {self.at}"
                    why = f"stopped: {row} without a finite gradient, at {event.name}"
                    break
                if self.at % self.recipe.evaluation.every == 0 or self.recipe.ends_at(self.at):
                    yield self.evaluate()
                    if self.recipe.train.patience and self.without_progress >= self.recipe.train.patience:
                        why = f"stopped early: {self.without_progress} evaluations without a better loss"
                        break
                if save and self.at % self.recipe.checkpoint.every == 0:
                    yield save()
                    saved, clock = self.at, time.monotonic()
            if save and saved != self.at:
                yield save()
            best = None if math.isnan(self.best) else self.best
            yield Ended(self.at, self.wanted or why, self.smoothed, best, self.seconds)

    def _asked(self, overdue: bool) -> str:
        """Returns why all ranks are to end, SAVE where a checkpoint is overdue on one, else nothing."""
        agreed = self.ranks.agree(self.wanted or SAVE * overdue)
        if agreed not in ("", SAVE):  # else not touched: a signal may have set it meanwhile
            self.wanted = agreed
        return agreed

    def started(self) -> Started:
        parameters = sum(parameter.numel() for parameter in self.weights.named.values())
        per_step = self.recipe.data.batch_size * self.recipe.length
        return Started(
            self.at, self.recipe.steps, parameters, per_step, self.work, str(self.device), self.compiled,
            self.source.floor, self.at > 0,
        )  # fmt: skip

    def evaluate(self) -> Evaluated:
        """The loss on the validation text, and a sample; by the mean of the weights, where there is one."""
        self.model.eval()
        asked = self.recipe.evaluation
        with self.average.in_place(self.weights.spread), self.shared.gathered():
            mean, right = judge(self.objective.logits, self.source, asked.batches, self.device, self.ranks)
            written = sample(self.model, self.source, asked)
        self.model.train()
        better = mean < self.best or (math.isnan(self.best) and not math.isnan(mean))
        self.best = mean if better else self.best
        self.without_progress = 0 if better else self.without_progress + 1
        rate, floor = self.source.bytes_per_token, self.source.floor
        bits = mean / math.log(2) / rate if rate else None
        gap = None if floor is None else mean - floor
        return Evaluated(
            self.at, mean, better, bits, gap, written, self.source.learned(mean), _or_none(right)
        )

    # ---- nothing lost

    def snapshot(self) -> Snapshot:
        """All that this run is now."""
        tensors, plain = optimizers.state(self.optimizer)
        held = {name: weight.detach() for name, weight in self.weights.named.items()}
        used, learning = held | self.average.mean, {name: held[name] for name in self.weights.learning}
        adapters = lora.adapters(used)
        return Snapshot(
            step=self.at,
            config=self.model.config,
            weights=lora.Merged(used, self.recipe.lora.scale),
            raw=learning if adapters or self.average.mean else {},
            mean=lora.adapters(self.average.mean),
            adapter=adapter(self.recipe, self.model.config, adapters),
            like=self.start,
            tokenizer=self.source.tokenizer,
            optimizer=tensors,
            rng=randomness.state(),
            loader=self.loader.state_dict(),
            plain={"optimizer": plain, "base": self.base},
            meters=self.state(),
        )

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there."""
        need_base(self.recipe, self.base, snapshot.plain.get("base", ""))
        for name in snapshot.raw if self.base else self.weights.named:
            fill(self.weights.named[name], snapshot.left(name))
        self.weights.spread()
        for name, mean in self.average.mean.items():
            fill(mean, snapshot.averaged(name))
        optimizers.restore(self.optimizer, snapshot.optimizer, snapshot.plain["optimizer"])
        if snapshot.rng:
            randomness.restore(snapshot.rng)
        else:  # of another number of ranks, whose dice nobody can divide
            randomness.seed(self.recipe.seed, self.ranks.rank, snapshot.step)
        self.loader.load_state_dict(snapshot.loader)
        self.restore_state(snapshot.meters)

    def state(self) -> dict[str, Any]:
        """The numbers of this run that are no tensors."""
        return {
            "step": self.at,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "smoothed": _or_none(self.smoothed),
            "best": _or_none(self.best),
            "without_progress": self.without_progress,
            "bad": self.bad,
        }

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self.at, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
        self.smoothed = math.nan if state["smoothed"] is None else state["smoothed"]
        self.best = math.nan if state["best"] is None else state["best"]
        self.without_progress, self.bad = state["without_progress"], state["bad"]


def rows_of_a_rank(recipe: Recipe, world: int) -> int:
    """Of the batch, which is that of all ranks together."""
    rows, parts = recipe.data.batch_size, recipe.train.accumulate
    if rows % (world * parts):
        raise ConfigError(
            f"data.batch_size={rows} does not split into {world} ranks × train.accumulate={parts} equal "
            f"parts. Use {max(1, round(rows / (world * parts))) * world * parts}, or another number of ranks."
        )
    return rows // world


def dtype_on(device: torch.device, wanted: str, weights: str = "float32") -> str:
    """The type of products: as wanted, else half precision where it is fast, or the weights have no other."""
    if wanted != "auto":
        return wanted
    return "bfloat16" if device.type == "cuda" or weights == "bfloat16" else "float32"


def device_of(name: str) -> torch.device:
    if name != "auto":
        try:
            device = torch.device(name)
            known = device.type in ("cpu", "cuda")  # torch has many more, such as one that only has shapes
        except RuntimeError:
            known = False
        if not known:
            raise UsageError(f"no device called {name!r}; use cpu, cuda or auto.")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UsageError("train.device=cuda, and torch sees no GPU here: use cpu or auto.")
        if device.index is not None:
            torch.cuda.set_device(device)  # whose dice and kernels are then those of the run
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _memory(device: torch.device) -> int:
    """Bytes at the peak: the device's, or this process's."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _or_none(x: float) -> float | None:
    return None if math.isnan(x) else x
