"""The distance of a linear attention's pattern from softmax's on the same queries and keys, layer by layer.

P is softmax's pattern, L the linear one. Total variation ½ Σ|P − L| is the probability mass that differs,
from 0 to 1; KL(P ‖ L) = Σ P ln(P / L), in nats, is infinite where P > 0 and L = 0. A row of L without any
mass has a total variation of ½.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.parts.attentions import LinearAttentionConfig
from pellucid.parts.attentions.softmax import SoftmaxAttentionConfig
from pellucid.reference.attentions import AttentionRefs, attend
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward


class Distance(NamedTuple):
    """Means over the rows of one layer's pattern."""

    layer: int
    total_variation: float
    kl: float


def distances(config: ModelConfig, weights: Mapping[str, Array], ids: Any) -> list[Distance]:
    """Returns one entry per layer, each from the linear model's own queries and keys."""
    if not isinstance(config.attention, LinearAttentionConfig):
        raise UsageError(
            f"attention {config.attention.kind!r} has no feature map to compare with softmax; use a linear "
            'attention, such as "linear_elu".'
        )
    tape = forward(config, weights, ids)
    return [_distance(tape, config, layer) for layer in range(config.n_layer)]


def table(config: ModelConfig, weights: Mapping[str, Array], ids: Any) -> Iterator[str]:
    """Yields the distances as a table."""
    yield f"attention {config.attention.kind} and softmax on the same queries and keys, mean over rows:"
    yield f"{'layer':>5}{'total variation':>18}{'KL, nats':>12}"
    for layer, total_variation, kl in distances(config, weights, ids):
        yield f"{layer:>5}{total_variation:>18.4f}{kl:>12.4f}"


def _distance(tape: Tape, config: ModelConfig, layer: int) -> Distance:
    t = tape.scope(f"blocks.{layer}.attn")
    last = {x: next(name for name in (f"{x}_rot", f"{x}_normed", x) if name in t) for x in "qkv"}
    softmax = Tape()
    other = softmax.scope(t.prefix)
    q, k, v = (other.constant(x, tape[t.ref(name)]) for x, name in last.items())
    allowed = softmax.constant("mask", tape["mask"]) if "mask" in tape else None
    plain = dataclasses.replace(config, attention=SoftmaxAttentionConfig())
    attend(other, plain, q, k, v, AttentionRefs(None, "", None, allowed), None)
    return Distance(layer, *distance(softmax[other.ref("pattern")], tape[t.ref("pattern")]))


def distance(softmax: Array, linear: Array) -> tuple[float, float]:
    """Returns the mean total variation and mean KL over the rows of two patterns.

    >>> distance(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]]))[0]
    0.25
    """
    apart = 0.5 * np.abs(softmax - linear).sum(-1)
    there = softmax > 0
    with np.errstate(divide="ignore"):
        ratio = np.log(np.where(there, softmax, 1.0)) - np.log(np.where(there, linear, 1.0))
    return float(apart.mean()), float((softmax * ratio).sum(-1).mean())
