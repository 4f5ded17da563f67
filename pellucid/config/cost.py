"""The cost of a config: parameters, operations, cache and activation bytes; and the cost of training it.

Operations are those of the matrix products, two for each multiply-and-add; the backward pass takes
twice as many again. Activations are all named values of one forward pass.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.formatting import format_bytes
from pellucid.base.names import Name, describe
from pellucid.base.patterns import matches
from pellucid.config import ModelConfig


@dataclass(frozen=True)
class Cost:
    parameters: int = 0
    flops: int = 0
    activation_bytes: int = 0
    cache_bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.activation_bytes + other.activation_bytes,
            self.cache_bytes + other.cache_bytes,
        )


STREAMS = ("resid_mid", "resid_post")
PARTS = ("embedding", "positions", "norms", "attention", "feed-forward", "residual", "unembedding")


def cost(config: ModelConfig, batch: int = 1, length: int = 0, width: int = 2) -> dict[str, Cost]:
    """Returns the cost of each part for one forward pass over `batch` sequences of `length` tokens (0: the
    context length), with numbers of `width` bytes."""
    length = length or config.context_length
    parameters = dict.fromkeys(PARTS, 0)
    flops = dict.fromkeys(PARTS, 0)
    for name, shape in config.parameters().items():
        parameters[_part(name)] += math.prod(shape)
        if _row(name).transposed:  # a matrix that x is multiplied with, not a table that is looked up
            flops[_part(name)] += 2 * batch * length * math.prod(shape)
    if config.unembedding.weight == "embed.weight":
        flops["unembedding"] += batch * length * cost_of_unembedding(config.vocab_size, config.d_model).flops
    flops["attention"] += config.n_layer * batch * config.attention.operations(config, length)
    activations = dict.fromkeys(PARTS, 0)
    sizes = config.sizes(batch, length)
    for name, part in _activations(config).items():
        activations[part] += math.prod(sizes[axis] for axis in _row(name).axes)
    activations["attention"] += config.n_layer * config.attention.numbers(config, sizes)
    cache = config.n_layer * batch * config.attention.count_cached(config, length)
    return {
        part: Cost(
            parameters[part],
            flops[part],
            width * activations[part],
            width * cache if part == "attention" else 0,
        )
        for part in PARTS
    }


def cost_of_unembedding(vocab_size: int, d_model: int) -> Cost:
    """Returns the parameters of W_U [V C], V · C, and the operations of x W_U for one token, 2 · V · C.

    >>> cost_of_unembedding(50257, 768).parameters
    38597376
    """
    return Cost(vocab_size * d_model, 2 * vocab_size * d_model)


def total(costs: dict[str, Cost]) -> Cost:
    return sum(costs.values(), Cost())


def table(config: ModelConfig) -> Iterator[str]:
    """Yields the lines of a table of the cost of one sequence as long as the context."""
    costs = cost(config)
    yield f"one sequence of {config.context_length:,} tokens forward, two bytes a number:"
    yield f"{'part':<14}{'parameters':>18}{'GFLOP':>14}{'activation MB':>16}{'cache MB':>12}"
    for part, c in (costs | {"total": total(costs)}).items():
        yield (
            f"{part:<14}{c.parameters:>18,}{c.flops / 1e9:>14,.1f}"
            f"{c.activation_bytes / 1e6:>16,.1f}{c.cache_bytes / 1e6:>12,.1f}"
        )


def _row(name: str) -> Name:
    row = describe(name)
    assert row is not None, name
    return row


def _part(name: str) -> str:
    first, *rest = name.split(".")
    where = rest[1] if first == "blocks" else first
    parts = {
        "embed": "embedding",
        "positions": "positions",
        "position_bias": "positions",
        "attn": "attention",
        "mlp": "feed-forward",
        "unembed": "unembedding",
    }
    return parts.get(where, "norms")


def _activations(config: ModelConfig) -> dict[str, str]:
    """Returns the values of one forward pass other than those between q, k, v and z, each with its part."""
    start = np.arange(1)
    learned = config.positions.row_ids(start) is not None
    rows = learned or config.positions.rows(start, config.d_model) is not None
    has_rotation = config.positions.rotation(start, config.d_head) is not None
    positions = ["position_rows"] * learned + ["positioned"] * rows
    positions += ["bias_rows", "position_bias"] * (config.positions.bias_ids(start) is not None)
    found = {"embedded": "embedding"} | dict.fromkeys(positions, "positions")
    found |= dict.fromkeys((f"embed_norm.{name}" for name in config.embed_norm.values), "norms")
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        attn = ["q", "k", "v", *["q_rot", "k_rot"] * has_rotation, "z"]
        attn += [f"{which}_norm.{name}" for which in "qk" for name in config.qk_norm.values]
        found |= dict.fromkeys((f"{block}.attn.{name}" for name in attn), "attention")
        found[f"{block}.attn_out"] = "attention"
        found |= dict.fromkeys((f"{block}.mlp.{name}" for name in config.mlp.values), "feed-forward")
        if not config.mlp.is_none:
            found[f"{block}.mlp_out"] = "feed-forward"
        for sub_layer, stream in zip(["attn"] + ["mlp"] * (not config.mlp.is_none), STREAMS, strict=False):
            norms = [f"{sub_layer}_{place}" for place in config.placement.places]
            found |= dict.fromkeys((f"{block}.{n}.{v}" for n in norms for v in config.norm.values), "norms")
            if stream in config.residual.values:
                found[f"{block}.{stream}"] = "residual"
    if config.placement.final:
        found |= dict.fromkeys((f"final_norm.{name}" for name in config.norm.values), "norms")
    capped = ["unembedded"] * (not config.logit_cap.is_none)
    return found | dict.fromkeys([*capped, "logits", "probs"], "unembedding")


# ---- training

FORWARD_BACKWARD, FROZEN_WEIGHTS = 3, 2
"""Forward passes whose arithmetic a training step takes: the gradients of activations and of weights take one
each, and frozen weights need no gradient."""
OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "averaging_momentum": 1}
"""Numbers of an optimizer's state for each parameter, where they are not two."""
IN_BLOCKS = ("norms", "attention", "feed-forward", "residual")


def count_parameters(config: ModelConfig) -> int:
    return sum(map(math.prod, config.parameters().values()))


def count_adapter_parameters(config: ModelConfig, rank: int, targets: Sequence[str]) -> int:
    """Returns the parameters of A [rank, in] and B [out, rank] of every projection that `targets` match."""
    return sum(
        rank * sum(shape)
        for name, shape in config.parameters().items()
        if name.endswith(".weight") and matches(name.removesuffix(".weight"), targets)
    )


def count_flops_per_token(config: ModelConfig, length: int = 0, passes: int = FORWARD_BACKWARD) -> float:
    """Returns the operations of a training step for each token, in rows of `length` tokens (the context where
    0): `passes` times those of the forward pass."""
    length = length or config.context_length
    return passes * total(cost(config, 1, length)).flops / length


@dataclass(frozen=True)
class TrainingMemory:
    """Estimated bytes. Fused attention keeps no scores and no pattern for the backward pass."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    def __str__(self) -> str:
        parts = ("weights", "gradients", "optimizer", "activations")
        named = ", ".join(f"{part} {format_bytes(getattr(self, part))}" for part in parts)
        return f"{format_bytes(self.total)}: {named}"


def estimate_training_memory(
    config: ModelConfig,
    rows: int,
    *,
    length: int = 0,
    width: int = 4,
    optimizer: str = "adamw",
    has_average: bool = False,
    adapters: int = 0,
    activation_checkpointing: bool = False,
) -> TrainingMemory:
    """Returns the memory of a step with `rows` rows at once; an activation takes `width` bytes, all else 4.

    With `adapters` above 0, that many parameters are trained and the others are frozen. With activation
    checkpointing, the residual stream into each block is kept, and one block's activations.
    """
    parameters = count_parameters(config)
    trainable = adapters or parameters
    length = length or config.context_length
    parts = cost(config, rows, length, width)
    kept = total(parts).activation_bytes
    if config.attention.form == "softmax":  # fused: nothing between q, k, v and z is kept
        kept -= config.n_layer * config.attention.numbers(config, config.sizes(rows, length)) * width
    if activation_checkpointing:
        outside = sum(parts[part].activation_bytes for part in PARTS if part not in IN_BLOCKS)
        streams = config.n_layer * rows * length * config.d_model * width
        kept = outside + streams + (kept - outside) // config.n_layer
    states = OPTIMIZER_STATES.get(optimizer, 2) + has_average
    return TrainingMemory(4 * (parameters + adapters), 4 * trainable, 4 * trainable * states, kept)
