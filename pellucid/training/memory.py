"""The memory of a run: its estimate, a refusal before anything is allocated where it cannot fit, and advice
where it runs out."""

import contextlib
from collections.abc import Callable, Iterator

import torch

from pellucid.base.errors import ResourceError
from pellucid.base.formatting import format_bytes
from pellucid.config import ModelConfig
from pellucid.config.cost import TrainingMemory, count_adapter_parameters, estimate_training_memory
from pellucid.engine.device_memory import get_device_memory
from pellucid.training.recipe import Recipe

SAFETY = 4.0
"""Activations are an estimate, and logits in chunks take less: a run is refused where it would take this many
times the memory."""
CHUNK = 4096
"""Positions whose logits are computed at once, where chunks are advised."""
HOST_ERROR = "can't allocate memory"
"""torch's message for the memory of the host, in an error without a class of its own."""


def estimate_memory(recipe: Recipe, config: ModelConfig, world: int = 1) -> TrainingMemory:
    """Returns the memory of a run, or of one rank where `world` ranks share the batch."""
    return estimate_training_memory(
        config,
        max(1, recipe.data.batch_size // (recipe.train.accumulate * world)),
        length=recipe.length,
        width={"bfloat16": 2, "float64": 8}.get(recipe.train.dtype, 4),
        optimizer=recipe.optimizer.kind,
        has_average=recipe.train.ema > 0,
        adapters=count_adapter_parameters(config, recipe.lora.rank, recipe.lora.targets),
        activation_checkpointing=recipe.train.activation_checkpointing,
    )


def check_fits(recipe: Recipe, config: ModelConfig, device: str, world: int = 1) -> None:
    """Refuses a run whose weights, gradients and optimizer exceed the memory of a device, or whose
    activations exceed it by far."""
    needed, there = estimate_memory(recipe, config, world), get_device_memory(device)
    states = needed.weights + needed.gradients + needed.optimizer
    if recipe.train.parallel == "fsdp":
        states //= world
    if states <= there and states + needed.activations <= SAFETY * there:
        return
    remedy = "a smaller model (model.n_layer, model.d_model, data.vocab_size)"
    if states <= there:
        at_once = max(1, recipe.data.batch_size // (recipe.train.accumulate * world))
        rows = int((there - states) / needed.activations * at_once) * recipe.train.accumulate * world
        fewer = f"data.batch_size={rows}" if rows else _advise(recipe, world)
        remedy = f"{fewer}; or {remedy}"
    raise ResourceError(
        f"this run does not fit into memory: {device} has {format_bytes(there)}, and the run needs about "
        f"{needed}. What needs less: {remedy}."
    )


@contextlib.contextmanager
def explain_out_of_memory(
    recipe: Recipe, device: str, done: Callable[[], int], world: int = 1
) -> Iterator[None]:
    """Raises a `ResourceError` with advice where memory runs out in this block.

    `done` returns the number of finished steps; `world` ranks share the batch.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise ResourceError(_describe(recipe, device, done(), world)) from None
    except RuntimeError as error:
        if HOST_ERROR not in str(error):
            raise
        raise ResourceError(_describe(recipe, "the host", done(), world)) from None


def _describe(recipe: Recipe, device: str, done: int, world: int) -> str:
    rows = recipe.data.batch_size // world // recipe.train.accumulate
    return (
        f"the memory of {device} was full in step {done + 1}, with {rows} rows of {recipe.length} tokens at "
        f"once. What needs less: {_advise(recipe, world)}; or a smaller model. Nothing of that step is kept."
    )


def _advise(recipe: Recipe, world: int) -> str:
    """Returns settings that need less memory for activations."""
    train, size = recipe.train, recipe.data.batch_size // world
    parts = next((parts for parts in range(2 * train.accumulate, size + 1) if size % parts == 0), 0)
    ways = [
        f"train.accumulate={parts} (the same batch, {size // max(parts, 1)} rows at a time)" * (parts > 0),
        "train.activation_checkpointing=true (activations are recomputed instead of being kept)"
        * (not train.activation_checkpointing),
        f"train.logits_chunk={CHUNK} (logits of {CHUNK:,} positions at once)" * (not train.logits_chunk),
        f"model.context_length={max(recipe.length // 2, 1)} (rows half as long)",
    ]
    return "; ".join(filter(None, ways))
