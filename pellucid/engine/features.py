"""Feature maps φ of linear attention, from x [… D] to φ(x) [… R], under the names of the specification's
operations."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import ModelConfig
from pellucid.engine.linear import linear
from pellucid.engine.tables import Tables
from pellucid.parts.attentions import LinearAttentionConfig


def make(config: ModelConfig) -> nn.Module:
    """Returns the feature map of the config's linear attention."""
    assert isinstance(config.attention, LinearAttentionConfig)
    return registry.class_of(__name__, config.attention.feature, "feature map", nn.Module)(config)


class EluPlusOne(nn.Module):
    """elu(x) + 1: x + 1 above 0, e^x below."""

    kind: ClassVar[str] = "elu_plus_one"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x + 1, x.clamp_max(0).exp())  # elu(x) + 1 would round e^x − 1 first


class ReluFeatures(nn.Module):
    """max(0, x)."""

    kind: ClassVar[str] = "relu"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class RandomFeatures(Tables):
    """Positive random features: e^(Ω x' − |x'|²/2) / √R with x' = x / D^¼."""

    kind: ClassVar[str] = "random_features"
    directions: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert isinstance(config.attention, LinearAttentionConfig)
        self.attention, self.d_head = config.attention, config.d_head
        self.make_tables(torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        return {"directions": self.attention.directions(self.d_head)}

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.d_head**-0.25
        projected = linear(x, self.directions.to(x.dtype), None)
        features: Tensor = (projected - x.square().sum(-1, keepdim=True) / 2).exp()
        return features / math.sqrt(len(self.directions))
