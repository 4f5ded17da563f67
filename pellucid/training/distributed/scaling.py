"""What one of several GPUs holds and sends, on paper: before anybody rents them.

With N parameters of four bytes, W ranks, and a share (W − 1)/W of everything that has to travel:

    ddp     weights, gradients and moments whole on each; the gradients go round twice: 2 · 4N · (W − 1)/W
    fsdp    a W-th of each; weights gathered in the forward pass and again in the backward, gradients sent
            once to whoever keeps them: 3 · 4N · (W − 1)/W, half as much again as ddp
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from pellucid.config import ModelConfig, preset
from pellucid.cost import OPTIMIZER_STATES, estimate_training_memory

NUMBER = 4
"""Bytes of a weight, a gradient or a moment."""


@dataclass(frozen=True)
class Share:
    """Bytes on one GPU, and how many it sends in a step."""

    weights: int
    gathered: int
    """Of other ranks' rows, at the most that are here at once, and their gradients."""
    gradients: int
    optimizer: int
    activations: int
    sent: int

    @property
    def total(self) -> int:
        return self.weights + self.gathered + self.gradients + self.optimizer + self.activations


def share(
    config: ModelConfig,
    way: str,
    world: int,
    rows: int,
    *,
    optimizer: str = "adamw",
    width: int = 2,
    accumulate: int = 1,
    recompute: bool = False,
) -> Share:
    """Of one of `world` ranks, each with micro-batches of so many rows; activations of `width` bytes."""
    sizes = {name: math.prod(shape) for name, shape in config.parameters().items()}
    everything = sum(sizes.values())
    block = sum(size for name, size in sizes.items() if name.startswith("blocks.0."))
    outside = everything - config.n_layer * block
    states = OPTIMIZER_STATES.get(optimizer, 2)
    activations = estimate_training_memory(
        config, rows, width=width, activation_checkpointing=recompute
    ).activations
    travels = (world - 1) / world
    if way != "fsdp" or world == 1:
        sent = round(2 * NUMBER * everything * travels)
        return Share(
            NUMBER * everything, 0, NUMBER * everything, NUMBER * everything * states, activations, sent
        )
    mine = sum(-(-shape[0] // world) * math.prod(shape[1:]) for shape in config.parameters().values())
    # the block at work and the one fetched ahead, with the gradients of the first, beside what is in no block
    gathered = NUMBER * (2 * outside + 3 * block)
    gradients = mine if accumulate == 1 else everything  # kept whole until they are sent
    fetched = accumulate * (outside + 2 * config.n_layer * block)
    sent = round(NUMBER * (fetched + everything) * travels)
    return Share(NUMBER * mine, gathered, NUMBER * gradients, NUMBER * mine * states, activations, sent)


# ---- the table of docs/scaling.md


@dataclass(frozen=True)
class Example:
    name: str
    config: ModelConfig
    rows: int
    recompute: bool = False


def examples() -> list[Example]:
    """GPT-2, Llama 3.2 of 1 B, and the 7 B of Llama 2, with rows that leave room on a GPU of 80 GB."""
    sizes = {"vocab_size": 32_000, "context_length": 4096, "n_layer": 32, "n_head": 32, "d_model": 4096}
    seven = ModelConfig.from_dict(sizes | {"d_ff": 11_008, "unembedding": "linear"})
    return [
        Example("124 M, 16 × 1,024", preset("gpt2"), 16),
        Example("1.2 B, 2 × 4,096", replace(preset("llama-3.2-1b"), context_length=4096), 2, True),
        Example("6.7 B, 1 × 4,096", seven, 1, True),
    ]


def table() -> Iterator[str]:
    """Rows of Markdown, one for each example, number of GPUs and way; in GB of 10⁹ bytes."""
    head = ("each GPU", "GPUs", "way", *(entry.name for entry in fields(Share) if entry.name != "sent"))
    yield f"| {' | '.join((*head, 'in all', 'sent a step'))} |"
    yield "|---" * (len(head) + 2) + "|"
    for example in examples():
        for world, way in ((1, "ddp"), (8, "ddp"), (8, "fsdp"), (64, "ddp"), (64, "fsdp")):
            made = share(example.config, way, world, example.rows, recompute=example.recompute)
            cells = (made.weights, made.gathered, made.gradients, made.optimizer, made.activations)
            figures = [f"{count / 1e9:.1f}" for count in (*cells, made.total, made.sent)]
            gpus = {1: "1", 8: "8", 64: "8 × 8"}[world]
            yield f"| {' | '.join((example.name, gpus, way if world > 1 else 'alone', *figures))} |"
