"""Attention by itself: queries, keys and values given as arrays, on a tape of the specification."""

from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.reference.attentions import AttentionRefs, attend
from pellucid.reference.op import Array
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Tape


def config_of(attention: Any, **more: Any) -> ModelConfig:
    sizes = {"vocab_size": 5, "context_length": 16, "n_layer": 1, "n_head": 1, "d_model": 4, "d_ff": 4}
    return ModelConfig.from_dict(sizes | {"positions": "none", "attention": attention} | more)


def heads(config: ModelConfig, q: Any, k: Any, v: Any, allowed: Any = "causal", bias: Any = None) -> Tape:
    """Forward and backward of Σ w ⊙ z, w a fixed draw; the values stand under `attn`, q, k and v beside."""
    tape = Tape()
    q, k, v = (tape.parameter(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    b, _, count, _ = q.shape
    if isinstance(allowed, str):
        allowed = np.tril(np.ones((count, k.shape[2])), k.shape[2] - count)[None, None]
    seen = (
        None
        if allowed is None
        else tape.constant("mask", np.broadcast_to(allowed, (b, 1, *allowed.shape[2:])))
    )
    added = None if bias is None else tape.parameter("bias", bias)
    z = attend(tape.scope("attn"), config, q, k, v, AttentionRefs(None, "", added, seen), None)
    weight = tape.constant("weight", np.random.default_rng(9).normal(size=z.shape))
    tape.backward(tape("loss", einsum, z, weight, spec="bhtd,bhtd->"))
    return tape


def drawn(seed: int, h: int = 4, k: int = 2, t: int = 5, s: int = 5, d: int = 3, b: int = 2) -> list[Array]:
    """Random q [B H T D], k and v [B K S D]."""
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape) for shape in ((b, h, t, d), (b, k, s, d), (b, k, s, d))]
