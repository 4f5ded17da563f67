"""The ways of attending, one file per form of `parts/attentions/`; each has
`apply(t, config, q, k, v, inputs, dropout)`."""

from collections.abc import Mapping
from typing import NamedTuple

from pellucid.base import registry
from pellucid.config import ModelConfig
from pellucid.reference.layers import KeepMasks
from pellucid.reference.op import Array, Ref
from pellucid.reference.tape import TapeScope

Past = Mapping[str, Array]
"""The KV cache of the tokens before, by name: blocks.L.attn.past_k and past_v [B K P D]."""


class AttentionRefs(NamedTuple):
    """What every layer's attention reads besides q, k and v: the RoPE angles [T pairs] and their layout, the
    position bias [H T S], and the mask [B 1 T S]; None where the config has none."""

    angles: Ref | None
    layout: str
    bias: Ref | None
    mask: Ref | None


def attend(
    t: TapeScope,
    config: ModelConfig,
    q: Ref,
    k: Ref,
    v: Ref,
    inputs: AttentionRefs,
    dropout: KeepMasks | None,
) -> Ref:
    """Returns the head outputs z [B H T D]: for each query, the values weighted by the attention pattern."""
    form = registry.module_of(__name__, config.attention.form, "attention form")
    ref: Ref = form.apply(t, config, q, k, v, inputs, dropout)
    return ref
