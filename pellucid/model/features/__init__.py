"""Feature maps of linear attention, one file per operation of that name in the specification; each has a
module `Features(config)` that makes φ(x) [… R] of x [… D]."""

from torch import nn

from pellucid import registry
from pellucid.config import ModelConfig
from pellucid.parts.attentions import LinearAttentionConfig


def make(config: ModelConfig) -> nn.Module:
    attention = config.attention
    assert isinstance(attention, LinearAttentionConfig)
    found: nn.Module = registry.module_of(__name__, attention.feature, "feature map").Features(config)
    return found
