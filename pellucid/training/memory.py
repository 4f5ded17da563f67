"""A run that does not fit into memory ends with one message that says what would fit."""

import contextlib
from collections.abc import Callable, Iterator

import torch

from pellucid.errors import UsageError
from pellucid.training.recipe import Recipe

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
        raise UsageError(_advice(recipe, device, done(), world)) from None
    except RuntimeError as error:
        if _HOST not in str(error):
            raise
        raise UsageError(_advice(recipe, "the host", done(), world)) from None


def _advice(recipe: Recipe, device: str, done: int, world: int) -> str:
    train, size = recipe.train, recipe.data.batch_size // world
    rows = size // train.accumulate
    parts = next((parts for parts in range(2 * train.accumulate, size + 1) if size % parts == 0), 0)
    ways = [
        f"train.accumulate={parts} (the same batch, {size // max(parts, 1)} rows at a time)" * (parts > 0),
        "train.recompute=yes (activations are made again instead of being kept)" * (train.recompute == "no"),
        f"train.chunk={CHUNK} (logits of so many positions at once)" * (not train.chunk),
        f"model.context_length={max(recipe.length // 2, 1)} (rows half as long)",
    ]
    return (
        f"the memory of {device} was full before step {done + 1} was done, with {rows} rows of "
        f"{recipe.length} tokens at once. What needs less: {'; '.join(filter(None, ways))}; or a smaller "
        "model. Of that step nothing is kept."
    )
