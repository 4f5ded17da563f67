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

from pellucid.data.loader import Loader
from pellucid.data.rows import Batch
from pellucid.errors import AskedWrongly
from pellucid.interop.pretrained import Pretrained
from pellucid.model import lora
from pellucid.model.loss import IGNORED
from pellucid.training import compiling, optimizers, randomness
from pellucid.training.average import Average
from pellucid.training.checkpoint import Snapshot
from pellucid.training.events import Ended, Evaluated, Event, Saved, Skipped, Started, Stepped
from pellucid.training.objective import Objective
from pellucid.training.plan import FROZEN, flops_per_token
from pellucid.training.recipe import Recipe
from pellucid.training.source import Source
from pellucid.training.start import adapter, beginning, need_base
from pellucid.training.validation import mean_loss, sample
from pellucid.training.weights import Weights

SMOOTH = 0.95
"""How much of the smoothed loss is its past."""
BAD_IN_A_ROW = 5
"""So many steps without a finite gradient, one after the other, end a run."""


class Trainer:
    def __init__(self, recipe: Recipe, source: Source, start: Pretrained | None = None) -> None:
        self.recipe, self.source, self.start = recipe, source, start
        self.device = _device(recipe.train.device)
        self.dtype = dtype_on(self.device, recipe.train.dtype)
        torch.manual_seed(recipe.seed)
        vocab_size = source.tokenizer.vocab_size
        self.model = beginning(recipe, start, vocab_size, self.device, self._type()).train()
        self.base = lora.fingerprint(self.model.named_parameters()) if recipe.lora.rank else ""
        """Which model it is that adapters adapt."""
        self.weights = Weights(self.model, recipe.train.only, recipe.train.freeze)
        self.optimizer = optimizers.make(self.weights.learning, recipe.optimizer)
        self.average = Average(self.weights.learning, recipe.train.ema)
        self.loader = Loader(source.train, recipe.data.batch_size)
        self.objective = Objective(self.model, recipe.train, self.dtype)
        self.loss, self.compiled = compiling.chosen(self.objective, recipe, self.device)
        self.at, self.tokens, self.seconds, self.bad = 0, 0, 0.0, 0
        self.smoothed = self.best = math.nan
        self.without_progress = 0
        self.wanted = ""
        """Why the run should end, once somebody wants it to."""

    def _type(self) -> torch.dtype:
        """Of the model's weights: float32, unless others are asked for."""
        if self.dtype == "float64":
            return torch.float64
        return torch.bfloat16 if self.recipe.train.weights == "bfloat16" else torch.float32

    # ---- one step

    def step(self) -> Stepped | Skipped:
        """One update of the weights."""
        begun = time.perf_counter()
        rate = self._set_rate()
        batch = next(self.loader)
        total, norm = torch.stack([self._backward(batch), self._norm()]).tolist()
        finite = math.isfinite(total) and math.isfinite(norm)
        name = "" if finite else self._first_bad(total)
        if finite:
            self._clip(norm)
            self.optimizer.step()
            self.weights.spread()
            self.average.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.at += 1
        self.tokens += batch.ids.size
        seconds = time.perf_counter() - begun
        self.seconds += seconds
        if not finite:
            self.bad += 1
            return Skipped(self.at, name)
        self.bad = 0
        self.smoothed = total if math.isnan(self.smoothed) else SMOOTH * self.smoothed + (1 - SMOOTH) * total
        speed = batch.ids.size / seconds
        return Stepped(
            self.at, total, self.smoothed, rate, norm, self.tokens, speed, self.seconds, _memory(self.device)
        )

    def _backward(self, batch: Batch) -> Tensor:
        """The mean loss over all counted targets, and its gradients, micro-batch by micro-batch.

        Each part's mean counts as much as it has targets, so that the sum is the mean over the whole batch,
        however the ignored ones are spread.
        """
        parts = self.recipe.train.accumulate
        counts = [int((part != IGNORED).sum()) for part in np.array_split(batch.targets, parts)]
        ids, targets = (
            torch.from_numpy(array).to(self.device, torch.int64) for array in (batch.ids, batch.targets)
        )
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        for some, wanted, count in zip(ids.chunk(parts), targets.chunk(parts), counts, strict=True):
            part = self.loss(some, wanted) * (count / max(sum(counts), 1))
            part.backward()
            self.weights.collect()
            total += part.detach()
        return total

    def _norm(self) -> Tensor:
        """The length of all gradients as one vector."""
        return nn.utils.get_total_norm(self._slopes())

    def _clip(self, norm: float) -> None:
        """Shorten the gradients to the limit, where they are longer."""
        if 0 < self.recipe.train.clip < norm:
            torch._foreach_mul_(self._slopes(), self.recipe.train.clip / norm)

    def _slopes(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.weights.learning.values() if parameter.grad is not None]

    def _set_rate(self) -> float:
        factor = self.recipe.schedule.factor(self.at, self.recipe.steps)
        optimizers.set_rate(self.optimizer, factor)
        optimizers.set_step(self.optimizer, self.recipe.optimizer, self.at)
        return float(self.recipe.optimizer.lr * factor)

    def _first_bad(self, total: float) -> str:
        """The first parameter whose gradient is no finite number; the loss itself where none is."""
        bad = (
            n
            for n, p in self.weights.named.items()
            if p.grad is not None and not torch.isfinite(p.grad).all()
        )
        return "loss" if not math.isfinite(total) else f"d.{next(bad, 'loss')}"

    # ---- the whole run

    def run(self, save: Callable[[], Saved] | None = None) -> Iterator[Event]:
        """Steps until the recipe's end, or until `wanted` says why not; evaluated and saved on the way."""
        deterministic = _deterministic(self.recipe.train.deterministic, self.device)
        with deterministic, contextlib.closing(self.loader):
            yield self.started()
            why = "finished"
            while self.at < self.recipe.steps and not self.wanted:
                event = self.step()
                yield event
                if isinstance(event, Skipped) and self.bad >= BAD_IN_A_ROW:
                    why = f"stopped: {self.bad} steps in a row without a finite gradient, at {event.name}"
                    break
                if self.at % self.recipe.evaluation.every == 0 or self.at == self.recipe.steps:
                    yield self.evaluate()
                    if self.recipe.train.patience and self.without_progress >= self.recipe.train.patience:
                        why = f"stopped early: {self.without_progress} evaluations without a better loss"
                        break
                if save and self.at % self.recipe.checkpoint.every == 0 and self.at < self.recipe.steps:
                    yield save()
            if save:
                yield save()
            best = None if math.isnan(self.best) else self.best
            yield Ended(self.at, self.wanted or why, self.smoothed, best, self.seconds)

    def started(self) -> Started:
        parameters = sum(parameter.numel() for parameter in self.weights.named.values())
        per_step = self.recipe.data.batch_size * self.recipe.length
        passes = FROZEN if self.recipe.lora.rank else 3
        work = flops_per_token(self.model.config, self.recipe.length, passes)
        return Started(
            self.at, self.recipe.steps, parameters, per_step, work, str(self.device), self.compiled,
            self.source.floor, self.at > 0,
        )  # fmt: skip

    def evaluate(self) -> Evaluated:
        """The loss on the validation text, and a sample; by the mean of the weights, where there is one."""
        self.model.eval()
        with self.average.in_place(self.weights.spread):
            mean = mean_loss(self.objective.logits, self.source, self.recipe.evaluation.batches, self.device)
            written = sample(self.model, self.source, self.recipe.evaluation)
        self.model.train()
        better = mean < self.best or (math.isnan(self.best) and not math.isnan(mean))
        self.best = mean if better else self.best
        self.without_progress = 0 if better else self.without_progress + 1
        rate, floor = self.source.bytes_per_token, self.source.floor
        bits = mean / math.log(2) / rate if rate else None
        gap = None if floor is None else mean - floor
        return Evaluated(self.at, mean, better, bits, gap, written, self.source.learned(mean))

    # ---- nothing lost

    def snapshot(self) -> Snapshot:
        """All that this run is now."""
        tensors, plain = optimizers.state(self.optimizer)
        dice, numbers = randomness.state()
        held = {name: weight.detach() for name, weight in self.weights.named.items()}
        adapters = lora.adapters(held | self.average.mean)
        return Snapshot(
            step=self.at,
            config=self.model.config,
            weights=lora.merged(held | adapters, self.recipe.lora.scale),
            raw=lora.adapters(held),
            adapter=adapter(self.recipe, self.model.config, adapters),
            like=self.start,
            tokenizer=self.source.tokenizer,
            optimizer=tensors,
            ema=self.average.mean,
            rng=dice,
            loader=self.loader.state_dict(),
            plain={"optimizer": plain, "rng": numbers, "base": self.base},
            meters=self.state(),
        )

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there."""
        need_base(self.recipe, self.base, snapshot.plain.get("base", ""))
        for name, weight in (snapshot.raw or snapshot.weights).items():
            self.weights.named[name].copy_(weight)
        self.weights.spread()
        for name, mean in snapshot.ema.items():
            self.average.mean[name].copy_(mean)
        optimizers.restore(self.optimizer, snapshot.optimizer, snapshot.plain["optimizer"])
        randomness.restore(dict(snapshot.rng), snapshot.plain["rng"])
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


@contextlib.contextmanager
def _deterministic(wanted: str, device: torch.device) -> Iterator[None]:
    """The same bits in every run: always on a CPU, on a GPU where it is asked for."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted == "yes" or (wanted == "auto" and device.type == "cpu"))
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def dtype_on(device: torch.device, wanted: str) -> str:
    """Half precision where it is fast."""
    return wanted if wanted != "auto" else "bfloat16" if device.type == "cuda" else "float32"


def _device(name: str) -> torch.device:
    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError:
            raise AskedWrongly(f"no device called {name!r}; use cpu, cuda or auto.") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise AskedWrongly("train.device=cuda, and torch sees no GPU here: use cpu or auto.")
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
