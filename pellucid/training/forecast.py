"""What a run will take: operations, memory and time."""

from dataclasses import dataclass, replace

import torch

from pellucid.config import ModelConfig
from pellucid.cost import (
    FORWARD_BACKWARD,
    FROZEN_WEIGHTS,
    TrainingMemory,
    count_adapter_parameters,
    count_flops_per_token,
    count_parameters,
)
from pellucid.format import format_bytes, format_duration
from pellucid.training import peak, speed
from pellucid.training.device import resolve_device, resolve_dtype
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.scaling import share
from pellucid.training.machine import hint_threads
from pellucid.training.memory import estimate_memory, get_device_memory
from pellucid.training.plan import UTILIZATION
from pellucid.training.recipe import Recipe
from pellucid.training.state import rows_per_rank


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
        estimate_memory(recipe, config),
        flops / (peak * (utilization or UTILIZATION)),
        peak,
        utilization,
    )


def describe_cost(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> list[str]:
    """Returns one line for each cost of a run on this machine, of which a few training steps are measured."""
    settings, device = recipe.train, resolve_device(recipe.train.device)
    dtype = resolve_dtype(device, settings.dtype, settings.weights)  # auto has no width
    recipe = replace(recipe, train=replace(settings, dtype=dtype))
    if settings.threads:
        torch.set_num_threads(settings.threads)
    best = peak.measure_peak(str(device), dtype)
    rows = rows_per_rank(recipe, ranks.world) // settings.accumulate
    reached = speed.measure_speed(config, rows, recipe.length, str(device), dtype, best)
    found = make_forecast(recipe, config, best * ranks.world, reached and reached / best)
    lines, there = found.lines(), get_device_memory(str(device))
    if found.memory.total > there:
        lines.append(f"may not fit       {device} has {format_bytes(there)} of memory")
    lines += hint_threads(recipe, ranks)
    if ranks.world > 1:
        lines.append(_describe_share(recipe, config, ranks))
    return lines


def _describe_share(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> str:
    """Returns the line of what one of several ranks holds and sends."""
    settings = recipe.train
    found = share(
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
        f"on each rank      {format_bytes(found.total)}, and {format_bytes(found.sent)} sent in each step, "
        f"with {ranks.world} ranks"
    )
