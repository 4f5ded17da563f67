"""Everything that a training step reads and changes: model, optimizer, average, position in the data, meters.

state = TrainState(recipe, source)
train_step(state)                   # in step.py
snapshot = state.snapshot()         # all that a checkpoint holds
state.restore(snapshot)             # continues from there, bit for bit
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pellucid.base.errors import ConfigError
from pellucid.data.loader import DataLoader
from pellucid.data.sources.source import Source
from pellucid.engine import lora
from pellucid.engine.device_memory import keep_freed_memory
from pellucid.formats.pretrained import Pretrained
from pellucid.training import optimizers
from pellucid.training.compiled_loss import COMPILED, CompiledLoss
from pellucid.training.device import configure_torch, decide_compilation, resolve_device, resolve_dtype
from pellucid.training.distributed import parallel
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.distributed.sharded import copy_rows
from pellucid.training.objective import Objective, make_class_weights
from pellucid.training.prefetch import Prefetcher
from pellucid.training.recipe import Recipe
from pellucid.training.saving import rng
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.start import check_base, init_model, make_adapter
from pellucid.training.weights import WeightAverage, Weights

SMOOTHING = 0.95
"""The weight of the past in the smoothed loss."""


@dataclass
class Meters:
    """The counts of a run, and the losses that decide when it ends."""

    step: int = 0
    """Steps made, skipped ones included."""
    tokens: int = 0
    seconds: float = 0.0
    smoothed_loss: float = math.nan
    best_loss: float = math.nan
    """The lowest validation loss."""
    evaluations_without_improvement: int = 0
    nonfinite_in_a_row: int = 0
    """Skipped steps since the last update."""

    def add_step(self, tokens: int, seconds: float, loss: float | None) -> None:
        """Counts a step; `loss` is None where it was skipped."""
        self.step += 1
        self.tokens += tokens
        self.seconds += seconds
        if loss is None:
            self.nonfinite_in_a_row += 1
            return
        self.nonfinite_in_a_row = 0
        past = self.smoothed_loss
        self.smoothed_loss = loss if math.isnan(past) else SMOOTHING * past + (1 - SMOOTHING) * loss

    def add_evaluation(self, loss: float) -> bool:
        """Counts an evaluation; returns whether its loss is the lowest so far."""
        is_best = loss < self.best_loss or (math.isnan(self.best_loss) and not math.isnan(loss))
        self.best_loss = loss if is_best else self.best_loss
        self.evaluations_without_improvement = 0 if is_best else self.evaluations_without_improvement + 1
        return is_best

    def to_dict(self) -> dict[str, Any]:
        """Returns the meters under the keys that checkpoints have for them; null is NaN."""
        values = {key: getattr(self, field) for key, field in METER_KEYS.items()}
        return {key: None if math.isnan(value) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Meters":
        values: dict[str, Any] = {
            field: math.nan if table[key] is None else table[key] for key, field in METER_KEYS.items()
        }
        return cls(**values)


METER_KEYS = {
    "step": "step",
    "tokens": "tokens",
    "seconds": "seconds",
    "smoothed": "smoothed_loss",
    "best": "best_loss",
    "without_progress": "evaluations_without_improvement",
    "bad": "nonfinite_in_a_row",
}


class TrainState:
    def __init__(
        self, recipe: Recipe, source: Source, base: Pretrained | None = None, ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        """Builds the state before the first step; `base` is the model that a fine-tuning starts from."""
        configure_torch(recipe.train.threads)
        self.recipe, self.source, self.base, self.ranks = recipe, source, base, ranks
        self.device = ranks.local_device(resolve_device(recipe.train.device))
        ranks.connect(self.device, recipe.train.timeout)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.dtype = resolve_dtype(self.device, recipe.train.dtype, recipe.train.weights)
        vocab_size = source.tokenizer.vocab_size
        self.model = init_model(recipe, base, vocab_size, self.device, self._weights_dtype()).train()
        self.base_fingerprint = lora.fingerprint(self.model.named_parameters()) if recipe.lora.rank else ""
        """Identifies the weights that adapters were trained beside."""
        rng.seed_everything(recipe.seed, ranks.rank)
        self.class_weights = make_class_weights(
            recipe.train.class_weights, source.tokenizer, self.model.config.vocab_size
        )
        """The weight of each token as a target, [V] float64 on the CPU; None where all are 1."""
        on_device = None if self.class_weights is None else self.class_weights.to(self.device)
        self.objective = Objective(self.model, recipe.train, self.dtype, on_device)
        self.parallel = parallel.make_parallel(self.objective, recipe.train.parallel, ranks)
        self.weights = Weights(self.model, recipe.train.only, recipe.train.freeze)
        self.optimizer = optimizers.make_optimizer(self.weights.trainable, recipe.optimizer)
        self.average = WeightAverage(self.weights, recipe.train.ema)
        rows = rows_per_rank(recipe, ranks.world)
        self.loader = DataLoader(source.train, rows, ranks.rank, ranks.world)
        self.prefetcher = Prefetcher(self.loader, self.device)
        is_sharded = isinstance(self.parallel, parallel.FullySharded)
        self._compilation = decide_compilation(recipe, self.device, is_sharded)
        self.compiled_loss = CompiledLoss(self.objective) if self._compilation == COMPILED else None
        self.loss = self.parallel.wrap_loss(
            self.compiled_loss or self.objective, self.device, self.is_deterministic
        )
        """(ids, targets, segments) → mean loss; its backward pass leaves the gradients of all ranks."""
        self.meters = Meters()

    @property
    def compiled(self) -> str:
        """ "yes", or "no: " and the reason."""
        return self.compiled_loss.compiled if self.compiled_loss else self._compilation

    def _weights_dtype(self) -> torch.dtype:
        if self.dtype == "float64":
            return torch.float64
        return torch.bfloat16 if self.recipe.train.weights == "bfloat16" else torch.float32

    @property
    def is_deterministic(self) -> bool:
        """Returns whether every run gives the same bits: always on a CPU, on a GPU where the recipe says
        so."""
        wanted = self.recipe.train.deterministic
        return self.device.type == "cpu" if wanted == "auto" else wanted is True

    def snapshot(self) -> Snapshot:
        """Returns everything that the rest of the run depends on. Tensors are not copied."""
        tensors, plain = optimizers.get_state(self.optimizer)
        current = {name: weight.detach() for name, weight in self.weights.named.items()}
        averaged = current | self.average.mean
        trainable = {name: current[name] for name in self.weights.trainable}
        adapters = lora.adapters(averaged)
        return Snapshot(
            step=self.meters.step,
            config=self.model.config,
            weights=lora.MergedWeights(averaged, self.recipe.lora.scale),
            trainable=trainable if adapters or self.average.mean else {},
            averaged_adapters=lora.adapters(self.average.mean),
            adapter=make_adapter(self.recipe, self.model.config, adapters),
            base=self.base,
            tokenizer=self.source.tokenizer,
            optimizer=tensors,
            rng=rng.get_rng_state(),
            loader=self.loader.state_dict(),
            plain={"optimizer": plain, "base": self.base_fingerprint},
            meters=self.meters.to_dict(),
        )

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Sets everything to what it was when the snapshot was taken, on any number of ranks."""
        check_base(self.recipe, self.base_fingerprint, snapshot.plain.get("base", ""))
        for name in snapshot.trainable if self.base_fingerprint else self.weights.named:
            copy_rows(self.weights.named[name], snapshot.get_trainable(name))
        self.weights.copy_to_model()
        for name, mean in self.average.mean.items():
            copy_rows(mean, snapshot.get_average(name))
        optimizers.load_state(self.optimizer, snapshot.optimizer, snapshot.plain["optimizer"])
        if snapshot.rng:
            rng.set_rng_state(snapshot.rng)
        else:  # the states of another number of ranks cannot be divided among these
            rng.seed_everything(self.recipe.seed, self.ranks.rank, snapshot.step)
        self.loader.load_state_dict(snapshot.loader)
        self.meters = Meters.from_dict(snapshot.meters)


def rows_per_rank(recipe: Recipe, world: int) -> int:
    """Returns how many rows of a batch, which is that of all ranks together, each rank computes."""
    rows, parts = recipe.data.batch_size, recipe.train.accumulate
    if rows % (world * parts):
        raise ConfigError(
            f"data.batch_size={rows} does not split into {world} ranks × train.accumulate={parts} equal "
            f"parts. Use {max(1, round(rows / (world * parts))) * world * parts}, or another number of ranks."
        )
    return rows // world
