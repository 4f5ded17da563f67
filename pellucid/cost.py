"""What a config costs: parameters, operations, cache and activation bytes, part by part.

Operations are those of the matrix products, two for each multiply-and-add; the backward pass takes
twice as many again. Activations are the named values of one forward pass, every one of them kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pellucid.config import ModelConfig
from pellucid.names import Name, describe


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
    """Part by part, for one forward pass over `batch` sequences of `length` tokens (the context where 0);
    a number takes `width` bytes."""
    length = length or config.context_length
    parameters = dict.fromkeys(PARTS, 0)
    flops = dict.fromkeys(PARTS, 0)
    for name, shape in config.parameters().items():
        parameters[_part(name)] += math.prod(shape)
        if _row(name).transposed:  # a matrix that x is multiplied with, not a table that is looked up
            flops[_part(name)] += 2 * batch * length * math.prod(shape)
    if config.unembedding.weight == "embed.weight":
        flops["unembedding"] += 2 * batch * length * config.vocab_size * config.d_model
    flops["attention"] += config.n_layer * batch * config.attention.operations(config, length)
    kept = dict.fromkeys(PARTS, 0)
    sizes = config.sizes(batch, length)
    for name, part in _activations(config).items():
        kept[part] += math.prod(sizes[axis] for axis in _row(name).axes)
    kept["attention"] += config.n_layer * config.attention.numbers(config, sizes)
    cache = config.n_layer * batch * config.attention.cached(config, length)
    return {
        part: Cost(
            parameters[part], flops[part], width * kept[part], width * cache if part == "attention" else 0
        )
        for part in PARTS
    }


def total(costs: dict[str, Cost]) -> Cost:
    return sum(costs.values(), Cost())


def table(config: ModelConfig) -> Iterator[str]:
    """The cost of one sequence as long as the context, for people."""
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
    """The values that one forward pass makes, but those between q, k, v and z: each with its part."""
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
