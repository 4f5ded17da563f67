"""The cost of a run, and every check that it makes before its first step; no file is written."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pellucid.base.errors import ConfigError, FileError
from pellucid.base.formatting import format_bytes, format_duration
from pellucid.config import ModelConfig
from pellucid.config.cost import (
    FORWARD_BACKWARD,
    FROZEN_WEIGHTS,
    TrainingMemory,
    count_adapter_parameters,
    count_flops_per_token,
    count_parameters,
)
from pellucid.data.sources.encoding import PROOF, check_texts, named_tokenizer, vocabulary_for
from pellucid.data.sources.source import kind_of, open_source
from pellucid.engine.device_memory import get_device_memory
from pellucid.text.corpus.sources import PACKED, files
from pellucid.training import machine, memory
from pellucid.training.device import decide_compilation, resolve_device, resolve_dtype
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.scaling import compute_share
from pellucid.training.evaluate import check_evaluation, check_patience
from pellucid.training.history.log import writer_class
from pellucid.training.objective import make_class_weights
from pellucid.training.optimizers import make_optimizer
from pellucid.training.plan import UTILIZATION, bytes_per_token
from pellucid.training.recipe import Recipe
from pellucid.training.saving.run_folder import DATA, RunFolder
from pellucid.training.start import init_model, make_config, resolve_recipe
from pellucid.training.state import rows_per_rank
from pellucid.training.weights import Weights

# ---- checks


def check_recipe(recipe: Recipe, ranks: Ranks, is_new: bool = True) -> tuple[Recipe, ModelConfig]:
    """Returns the resolved recipe and the model's config, its vocabulary estimated where it is not known yet.

    Raises what the run would raise before its first step.
    """
    if is_new:
        check_out(recipe)
    device = resolve_device(recipe.train.device)
    rows_per_rank(recipe, ranks.world)
    recipe, start = resolve_recipe(recipe)
    cache = Path(recipe.out) / DATA
    if kind_of(recipe.data) == "text" and not (cache / PROOF).is_file():
        vocab_size = _check_text(recipe, has_tokenizer=start is not None)
        if recipe.data.epochs and not recipe.steps:
            recipe = replace(recipe, steps=_estimate_steps(recipe, vocab_size))
    else:
        source = open_source(recipe.data, recipe.length, recipe.seed, cache, start=start)
        recipe = recipe.resolve_steps(source.train)
        check_evaluation(source, recipe)
        make_class_weights(recipe.train.class_weights, source.tokenizer, source.tokenizer.vocab_size)
        vocab_size = source.tokenizer.vocab_size
    config = make_config(recipe, start) if start else recipe.config(vocab_size)
    memory.check_fits(recipe, config, str(device), ranks.world)
    model = init_model(recipe, start, vocab_size, torch.device("meta"), torch.float32)
    weights = Weights(model, recipe.train.only, recipe.train.freeze)
    make_optimizer(weights.trainable, recipe.optimizer)
    if recipe.train.tensorboard:
        writer_class()
    decide_compilation(recipe, device, recipe.train.parallel == "fsdp" and not ranks.is_single_process)
    return recipe, config


def check_out(recipe: Recipe) -> None:
    """Refuses an `out` in which no run can begin."""
    out = Path(recipe.out)
    RunFolder(out).check_new()
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise FileError(f"cannot write {out}: {above} is not a writable folder.")


def text_bytes(recipe: Recipe) -> int:
    """Returns the bytes of the files that a run will read; every file of a text is checked on the way."""
    kind, paths = kind_of(recipe.data), recipe.data.paths
    if kind == "tokens":
        return sum(file.stat().st_size for path in paths for file in Path(path).rglob("*") if file.is_file())
    read = check_texts(recipe.data).files if kind == "text" else paths
    return sum(os.path.getsize(file) for file in read if os.path.isfile(file))


def _check_text(recipe: Recipe, has_tokenizer: bool) -> int:
    """Checks a text that is not encoded yet, and returns the estimated vocabulary size."""
    size, data = text_bytes(recipe), recipe.data
    if not has_tokenizer:
        named_tokenizer(data)
    is_packed = any(path.endswith(PACKED) for path in files(data.paths))
    most = 2 * size  # tokens, where each byte is a document with an end token
    if not is_packed and most < recipe.length + 1:
        raise ConfigError(
            f"the text is too short: it has {size:,} bytes, and one row takes {recipe.length + 1} tokens. "
            "Use a smaller model.context_length, or more text."
        )
    share = data.validation
    check_patience(recipe, len(share) if isinstance(share, str) else share)
    fixed = {"bytes": 256, "characters": 256}
    return data.vocab_size or fixed.get(data.tokenizer) or vocabulary_for(size)


def _estimate_steps(recipe: Recipe, vocab_size: int) -> int:
    """Returns about how many steps the epochs of a text take that is not encoded yet."""
    data = recipe.data
    per_token = 1.0 if data.tokenizer in ("bytes", "characters") else bytes_per_token(vocab_size)
    held_out = 0.0 if isinstance(data.validation, str) else data.validation
    tokens = text_bytes(recipe) * (1 - held_out) / per_token
    return max(1, math.ceil(data.epochs * tokens / (recipe.length * data.batch_size)))


# ---- cost


@dataclass(frozen=True)
class Forecast:
    parameters: int
    flops_per_token: float
    tokens_per_step: int
    tokens: int
    flops: float
    memory: TrainingMemory
    seconds: float
    peak: float
    utilization: float | None = None
    """The fraction of the peak that training steps were measured to reach; None where none was measured."""

    def lines(self) -> list[str]:
        reached = f"if training reaches {UTILIZATION:.0%}"
        if self.utilization is not None:
            reached = f"as training steps were measured to reach {100 * self.utilization:.2g}%"
        return [
            f"parameters        {self.parameters:,}",
            f"tokens            {self.tokens:,}: {self.tokens_per_step:,} in each step, "
            f"{self.tokens / self.parameters:.1f} for each parameter",
            f"operations        {self.flops_per_token:.4g} for each token, {self.flops:.4g} in all",
            f"memory, about     {self.memory}",
            f"time, about       {format_duration(self.seconds)}, {reached} of this machine's measured "
            f"{self.peak / 1e9:,.0f} GFLOP/s",
        ]


def make_forecast(
    recipe: Recipe, config: ModelConfig, peak: float, utilization: float | None = None
) -> Forecast:
    """Returns the forecast for a machine of `peak` FLOP/s, of which training reaches `utilization`."""
    adapters = count_adapter_parameters(config, recipe.lora.rank, recipe.lora.targets)
    per_token = count_flops_per_token(config, recipe.length, FROZEN_WEIGHTS if adapters else FORWARD_BACKWARD)
    per_step = recipe.data.batch_size * recipe.length
    tokens = recipe.steps * per_step
    flops = per_token * tokens
    return Forecast(
        count_parameters(config),
        per_token,
        per_step,
        tokens,
        flops,
        memory.estimate_memory(recipe, config),
        flops / (peak * (utilization or UTILIZATION)),
        peak,
        utilization,
    )


def describe_cost(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> list[str]:
    """Returns one line for each cost of a run on this machine, of which a few training steps are measured."""
    settings, device = recipe.train, resolve_device(recipe.train.device)
    hints = machine.hint_dtype(recipe)
    dtype = resolve_dtype(device, settings.dtype, settings.weights)  # auto has no width
    recipe = replace(recipe, train=replace(settings, dtype=dtype))
    if settings.threads:
        torch.set_num_threads(settings.threads)
    best = machine.measure_peak(str(device), dtype)
    rows = rows_per_rank(recipe, ranks.world) // settings.accumulate
    reached = machine.measure_speed(config, rows, recipe.length, str(device), dtype, best)
    found = make_forecast(recipe, config, best * ranks.world, reached and reached / best)
    lines, there = found.lines(), get_device_memory(str(device))
    if found.memory.total > there:
        lines.append(f"may not fit       {device} has {format_bytes(there)} of memory")
    lines += hints + machine.hint_threads(recipe, ranks)
    if ranks.world > 1:
        lines.append(_describe_share(recipe, config, ranks))
    return lines


def _describe_share(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> str:
    """Returns the line of what one of several ranks holds and sends."""
    settings = recipe.train
    share = compute_share(
        config,
        settings.parallel,
        ranks.world,
        rows_per_rank(recipe, ranks.world) // settings.accumulate,
        optimizer=recipe.optimizer.kind,
        width=2 if settings.dtype == "bfloat16" else 4,
        accumulate=settings.accumulate,
        recompute=settings.activation_checkpointing,
    )
    return (
        f"on each rank      {format_bytes(share.total)}, and {format_bytes(share.sent)} sent in each step, "
        f"with {ranks.world} ranks"
    )
