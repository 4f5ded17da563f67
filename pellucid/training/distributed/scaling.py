"""The memory and traffic of one of several GPUs, computed before anything is allocated.

With N parameters of four bytes and W ranks, where a fraction (W − 1)/W of everything is sent:

    ddp     weights, gradients and moments whole on each; gradients all-reduced: 2 · 4N · (W − 1)/W
    fsdp    a W-th of each; weights gathered in the forward and again in the backward pass, gradients
            reduce-scattered: 3 · 4N · (W − 1)/W
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from pellucid.config import ModelConfig, preset
from pellucid.config.cost import OPTIMIZER_STATES, estimate_training_memory

NUMBER = 4
"""Bytes of a weight, a gradient or a moment."""


@dataclass(frozen=True)
class Share:
    """The bytes that one GPU holds, and those that it sends in a step."""

    weights: int
    gathered: int
    """Rows of other ranks that are here at the same time, and their gradients, at most."""
    gradients: int
    optimizer: int
    activations: int
    sent: int

    @property
    def total(self) -> int:
        return self.weights + self.gathered + self.gradients + self.optimizer + self.activations


def compute_share(
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
    """Returns the share of one of `world` ranks with micro-batches of `rows` rows and activations of `width`
    bytes."""
    sizes = {name: math.prod(shape) for name, shape in config.parameters().items()}
    everything = sum(sizes.values())
    block = sum(size for name, size in sizes.items() if name.startswith("blocks.0."))
    outside = everything - config.n_layer * block
    states = OPTIMIZER_STATES.get(optimizer, 2)
    activations = estimate_training_memory(
        config, rows, width=width, activation_checkpointing=recompute
    ).activations
    fraction = (world - 1) / world
    if way != "fsdp" or world == 1:
        sent = round(2 * NUMBER * everything * fraction)
        return Share(
            NUMBER * everything, 0, NUMBER * everything, NUMBER * everything * states, activations, sent
        )
    own = sum(-(-shape[0] // world) * math.prod(shape[1:]) for shape in config.parameters().values())
    # The block at work and the prefetched one, the gradients of the first, and the weights outside of blocks.
    gathered = NUMBER * (2 * outside + 3 * block)
    gradients = own if accumulate == 1 else everything  # whole until they are reduced
    fetched = accumulate * (outside + 2 * config.n_layer * block)
    sent = round(NUMBER * (fetched + everything) * fraction)
    return Share(NUMBER * own, gathered, NUMBER * gradients, NUMBER * own * states, activations, sent)


# ---- the table of docs/scaling.md


@dataclass(frozen=True)
class ScalingExample:
    name: str
    config: ModelConfig
    rows: int
    recompute: bool = False


def examples() -> list[ScalingExample]:
    """Returns GPT-2, Llama 3.2 1B and Llama 2 7B, with batches that fit a GPU of 80 GB."""
    sizes = {"vocab_size": 32_000, "context_length": 4096, "n_layer": 32, "n_head": 32, "d_model": 4096}
    seven = ModelConfig.from_dict(sizes | {"d_ff": 11_008, "unembedding": "linear"})
    return [
        ScalingExample("124 M, 16 × 1,024", preset("gpt2"), 16),
        ScalingExample("1.2 B, 2 × 4,096", replace(preset("llama-3.2-1b"), context_length=4096), 2, True),
        ScalingExample("6.7 B, 1 × 4,096", seven, 1, True),
    ]


def table() -> Iterator[str]:
    """Yields rows of Markdown, one for each example, number of GPUs and engine; in GB of 10⁹ bytes."""
    head = ("each GPU", "GPUs", "way", *(entry.name for entry in fields(Share) if entry.name != "sent"))
    yield f"| {' | '.join((*head, 'in all', 'sent a step'))} |"
    yield "|---" * (len(head) + 2) + "|"
    for example in examples():
        for world, way in ((1, "ddp"), (8, "ddp"), (8, "fsdp"), (64, "ddp"), (64, "fsdp")):
            share = compute_share(example.config, way, world, example.rows, recompute=example.recompute)
            cells = (share.weights, share.gathered, share.gradients, share.optimizer, share.activations)
            figures = [f"{count / 1e9:.1f}" for count in (*cells, share.total, share.sent)]
            gpus = {1: "1", 8: "8", 64: "8 × 8"}[world]
            yield f"| {' | '.join((example.name, gpus, way if world > 1 else 'alone', *figures))} |"
