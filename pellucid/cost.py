"""What a config costs: parameters, operations, cache and activation bytes, part by part.

Operations are those of the matrix products, two for each multiply-and-add; the backward pass takes
twice as many again. Activations are the named values of one forward pass, every one of them kept.
"""

import math
from dataclasses import dataclass

import numpy as np

from pellucid.config import ModelConfig
from pellucid.names import describe


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


PARTS = ("embedding", "positions", "norms", "attention", "feed-forward", "residual", "unembedding")


def cost(config: ModelConfig, batch: int = 1, length: int = 0, width: int = 2) -> dict[str, Cost]:
    """Part by part, for one forward pass over `batch` sequences of `length` tokens (the context where 0);
    a number takes `width` bytes."""
    length = length or config.context_length
    parameters = dict.fromkeys(PARTS, 0)
    flops = dict.fromkeys(PARTS, 0)
    for name, shape in config.parameters().items():
        parameters[_part(name)] += math.prod(shape)
        if len(shape) == 2 and name not in ("embed.weight", "positions.weight"):
            flops[_part(name)] += 2 * batch * length * math.prod(shape)
    if config.unembedding.weight == "embed.weight":
        flops["unembedding"] += 2 * batch * length * config.vocab_size * config.d_model
    # scores and mixture: every query with every key, as computed before the mask
    flops["attention"] += 4 * config.n_layer * batch * config.n_head * length**2 * config.d_head
    kept = dict.fromkeys(PARTS, 0)
    for name, part in _activations(config).items():
        kept[part] += size(config, name, batch, length)
    cache = 2 * config.n_layer * batch * config.n_kv_head * length * config.d_head
    return {
        part: Cost(
            parameters[part], flops[part], width * kept[part], width * cache if part == "attention" else 0
        )
        for part in PARTS
    }


def total(costs: dict[str, Cost]) -> Cost:
    return sum(costs.values(), Cost())


def size(config: ModelConfig, name: str, batch: int, length: int) -> int:
    """How many numbers a named value holds."""
    letters = {
        "b": batch,
        "t": length,
        "s": length,
        "c": config.d_model,
        "h": config.n_head,
        "k": config.n_kv_head,
        "d": config.d_head,
        "f": config.d_ff,
        "v": config.vocab_size,
        "1": 1,
    }
    about = describe(name)
    assert about is not None, name
    return math.prod(letters[axis] for axis in about.axes)


def _part(name: str) -> str:
    first, *rest = name.split(".")
    where = rest[1] if first == "blocks" else first
    parts = {
        "embed": "embedding",
        "positions": "positions",
        "attn": "attention",
        "mlp": "feed-forward",
        "unembed": "unembedding",
    }
    return parts.get(where, "norms")


def _activations(config: ModelConfig) -> dict[str, str]:
    """The values that one forward pass makes, each with the part it belongs to."""
    start = np.arange(1)
    table = config.positions.parameters(1, config.d_model)
    rows = bool(table) or config.positions.rows(start, config.d_model) is not None
    turned = config.positions.turn(start, config.d_head) is not None
    masked = config.mask.allowed(start, start) is not None
    found = {"embedded": "embedding"}
    found |= dict.fromkeys(
        (["position_rows"] if table else []) + (["positioned"] if rows else []), "positions"
    )
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        attn = ["q", "k", "v"] + ["q_rot", "k_rot"] * turned + ["scores"] + ["masked"] * masked
        found |= dict.fromkeys((f"{block}.attn.{name}" for name in [*attn, "pattern", "z"]), "attention")
        found[f"{block}.attn_out"] = "attention"
        norms = ["attn_norm"] + ["mlp_norm"] * bool(config.mlp.values)
        found |= dict.fromkeys((f"{block}.{norm}.{v}" for norm in norms for v in config.norm.values), "norms")
        found |= dict.fromkeys((f"{block}.mlp.{name}" for name in config.mlp.values), "feed-forward")
        if config.mlp.values:
            found[f"{block}.mlp_out"] = "feed-forward"
        streams = ["resid_mid"] + ["resid_post"] * bool(config.mlp.values)
        found |= dict.fromkeys((f"{block}.{name}" for name in streams if config.residual.keep), "residual")
    found |= dict.fromkeys((f"final_norm.{name}" for name in config.norm.values), "norms")
    return found | {"logits": "unembedding", "probs": "unembedding"}
