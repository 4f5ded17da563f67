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

import torch
from torch import Tensor, nn

from pellucid.data.loader import Loader
from pellucid.data.rows import Batch
from pellucid.errors import AskedWrongly
from pellucid.generation.loop import generate
from pellucid.model.chunked_loss import chunked_loss
from pellucid.model.initialisations import initialise
from pellucid.model.loss import IGNORED, loss
from pellucid.model.transformer import Transformer
from pellucid.training import compiling, optimizers, randomness
from pellucid.training.average import Average
from pellucid.training.checkpoint import Snapshot
from pellucid.training.events import Ended, Evaluated, Event, Saved, Skipped, Started, Stepped
from pellucid.training.plan import flops_per_token
from pellucid.training.recipe import Recipe
from pellucid.training.source import Source

SMOOTH = 0.95
"""How much of the smoothed loss is its past."""
BAD_IN_A_ROW = 5
"""So many steps without a finite gradient, one after the other, end a run."""


class Trainer:
    def __init__(self, recipe: Recipe, source: Source) -> None:
        self.recipe, self.source = recipe, source
        self.device = _device(recipe.train.device)
        self.dtype = dtype_on(self.device, recipe.train.dtype)
        config = recipe.config(source.tokenizer.vocab_size)
        torch.manual_seed(recipe.seed)
        wide = torch.float64 if self.dtype == "float64" else torch.float32
        self.model = Transformer.empty(config, self.device, wide).train()
        initialise(self.model, recipe.train.initialisation, recipe.seed)
        self.named = dict(self.model.named_parameters())
        self.optimizer = optimizers.make(self.named, recipe.optimizer)
        self.average = Average(self.named, recipe.train.ema)
        self.loader = Loader(source.train, recipe.data.batch_size)
        self.loss, self.compiled = compiling.chosen(self._loss, recipe, self.device)
        self.at, self.tokens, self.seconds, self.bad = 0, 0, 0.0, 0
        self.smoothed = self.best = math.nan
        self.without_progress = 0
        self.wanted = ""
        """Why the run should end, once somebody wants it to."""

    # ---- one step

    def step(self) -> Stepped | Skipped:
        """One update of the weights."""
        begun = time.perf_counter()
        rate = self._set_rate()
        batch = next(self.loader)
        total = self._backward(batch)
        norm = self._clip()
        finite = math.isfinite(total) and math.isfinite(norm)
        name = "" if finite else self._first_bad(total)
        if finite:
            self.optimizer.step()
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

    def _backward(self, batch: Batch) -> float:
        """The gradients of the mean loss over all counted targets, micro-batch by micro-batch.

        Each part's mean counts as much as it has targets, so that the sum is the mean over the whole batch,
        however the ignored ones are spread.
        """
        ids, targets = (
            torch.from_numpy(array).to(self.device, torch.int64) for array in (batch.ids, batch.targets)
        )
        parts = list(zip(*(x.chunk(self.recipe.train.accumulate) for x in (ids, targets)), strict=True))
        counts = [int((part != IGNORED).sum()) for _, part in parts]
        whole, total = max(sum(counts), 1), 0.0
        for (some, wanted), count in zip(parts, counts, strict=True):
            part = self.loss(some, wanted) * (count / whole)
            part.backward()
            total += float(part.detach())
        return total

    def _loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        asked = self.recipe.train
        if not asked.chunk:
            return loss(self._logits(ids), targets, smoothing=asked.smoothing, z=asked.z)
        model = self.model
        weight = model.embed.weight if model.unembed.weight is None else model.unembed.weight
        with self._precision():
            return chunked_loss(
                model.stream(ids), weight, model.unembed.bias, targets, chunk=asked.chunk, cap=model.cap,
                smoothing=asked.smoothing, z=asked.z,
            )  # fmt: skip

    def _logits(self, ids: Tensor) -> Tensor:
        with self._precision():
            logits: Tensor = self.model(ids)
            return logits

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Products in half precision, where that is asked for."""
        narrow = self.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if narrow else contextlib.nullcontext()

    def _clip(self) -> float:
        """The length of all gradients as one vector, which is then no longer than the limit."""
        slopes = [parameter.grad for parameter in self.named.values() if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(slopes))
        limit = self.recipe.train.clip
        if limit and norm > limit and math.isfinite(norm):
            torch._foreach_mul_(slopes, limit / norm)
        return norm

    def _set_rate(self) -> float:
        factor = self.recipe.schedule.factor(self.at, self.recipe.steps)
        optimizers.set_rate(self.optimizer, factor)
        optimizers.set_step(self.optimizer, self.recipe.optimizer, self.at)
        return float(self.recipe.optimizer.lr * factor)

    def _first_bad(self, total: float) -> str:
        """The first parameter whose gradient is no finite number; the loss itself where none is."""
        bad = (n for n, p in self.named.items() if p.grad is not None and not torch.isfinite(p.grad).all())
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
        parameters = sum(parameter.numel() for parameter in self.named.values())
        per_step = self.recipe.data.batch_size * self.recipe.length
        work = flops_per_token(self.model.config)
        return Started(
            self.at, self.recipe.steps, parameters, per_step, work, str(self.device), self.compiled,
            self.source.floor, self.at > 0,
        )  # fmt: skip

    @torch.no_grad()
    def evaluate(self) -> Evaluated:
        """The mean loss over the validation text, each target counted once, and a sample."""
        self.model.eval()
        with self.average.in_place():
            total, count = 0.0, 0
            most = self.recipe.evaluation.batches or math.inf
            for i, (ids, targets) in enumerate(self.source.validation):
                if i >= most:
                    break
                some, wanted = (torch.as_tensor(x, device=self.device).long() for x in (ids, targets))
                here = int((wanted != IGNORED).sum())
                total += float(loss(self._logits(some), wanted)) * here  # without smoothing and z-loss
                count += here
            sample = self._sample()
        self.model.train()
        mean = total / count if count else math.nan
        better = count > 0 and (math.isnan(self.best) or mean < self.best)
        self.best = mean if better else self.best
        self.without_progress = 0 if better else self.without_progress + 1
        rate, floor = self.source.bytes_per_token, self.source.floor
        bits = mean / math.log(2) / rate if rate else None
        gap = None if floor is None else mean - floor
        return Evaluated(self.at, mean, better, bits, gap, sample, self.source.learned(mean))

    def _sample(self) -> str:
        """A text of the model's own, the same dice at every evaluation."""
        tokenizer, prompt = self.source.tokenizer, self.recipe.evaluation.prompt
        wanted = self.recipe.evaluation.sample
        config = self.model.config
        if not wanted or config.mask.together:
            return ""
        start = tokenizer.encode(prompt) if prompt else [self.source.begin]
        start = start[: config.context_length - 1] or [self.source.begin]
        written: list[int] = []
        for tokens in generate(self.model, [start], max_new_tokens=wanted, temperature=0.8, seed=0):
            if tokens[0] is None or tokens[0] == self.source.end:
                break
            written.append(tokens[0])
        return prompt + tokenizer.decode(written)

    # ---- nothing lost

    def snapshot(self) -> Snapshot:
        """All that this run is now."""
        tensors, plain = optimizers.state(self.optimizer)
        dice, numbers = randomness.state()
        return Snapshot(
            step=self.at,
            config=self.model.config,
            weights={name: weight.detach() for name, weight in self.named.items()},
            tokenizer=self.source.tokenizer,
            optimizer=tensors,
            ema=self.average.mean,
            rng=dice,
            loader=self.loader.state_dict(),
            plain={"optimizer": plain, "rng": numbers},
            meters=self.state(),
        )

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there."""
        for name, weight in snapshot.weights.items():
            self.named[name].copy_(weight)
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
