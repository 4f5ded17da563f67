"""A run that does not fit into memory ends with one message that says what would fit; one that cannot fit is
refused before anything is allocated."""

import contextlib
from collections.abc import Callable, Iterator

import torch

from pellucid.config import ModelConfig
from pellucid.errors import ResourceError
from pellucid.training.plan import machine_memory, memory_of, readable_size
from pellucid.training.recipe import Recipe

FAR = 4.0
"""Activations are an estimate, and logits made in chunks take less: a run is refused where it would
take this many times the memory."""

CHUNK = 4096
"""Positions whose logits are made at once, where chunks are advised."""
_HOST = "can't allocate memory"
"""What torch says of the memory of the host, in an error that has no class of its own."""


@contextlib.contextmanager
def enough(recipe: Recipe, device: str, done: Callable[[], int], world: int = 1) -> Iterator[None]:
    """In this block, memory that is full is told with advice; `done` says how many steps had been done, and
    `world` how many ranks share the batch."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise ResourceError(_advice(recipe, device, done(), world)) from None
    except RuntimeError as error:
        if _HOST not in str(error):
            raise
        raise ResourceError(_advice(recipe, "the host", done(), world)) from None


def check_fits(recipe: Recipe, config: ModelConfig, device: str, world: int = 1) -> None:
    """Refuses a run whose weights, gradients and optimizer exceed the memory of a device, or whose
    activations exceed it by far."""
    needed, there = memory_of(recipe, config, world), machine_memory(device)
    states = needed.weights + needed.gradients + needed.optimizer
    if recipe.train.parallel == "fsdp":
        states //= world
    if states <= there and states + needed.activations <= FAR * there:
        return
    remedy = "a smaller model (model.n_layer, model.d_model, data.vocab_size)"
    if states <= there:
        at_once = max(1, recipe.data.batch_size // (recipe.train.accumulate * world))
        rows = int((there - states) / needed.activations * at_once) * recipe.train.accumulate * world
        fewer = f"data.batch_size={rows}" if rows else f"{_ways(recipe, world)}"
        remedy = f"{fewer}; or {remedy}"
    raise ResourceError(
        f"this run does not fit into memory: {device} has {readable_size(there)}, and the run needs about "
        f"{needed.in_words()}. What needs less: {remedy}."
    )


def _advice(recipe: Recipe, device: str, done: int, world: int) -> str:
    rows = recipe.data.batch_size // world // recipe.train.accumulate
    return (
        f"the memory of {device} was full before step {done + 1} was done, with {rows} rows of "
        f"{recipe.length} tokens at once. What needs less: {_ways(recipe, world)}; or a smaller "
        "model. Of that step nothing is kept."
    )


def _ways(recipe: Recipe, world: int) -> str:
    """Settings that need less memory for activations."""
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
