"""Positive random features: e^(Ω x' − |x'|²/2) / √R with x' = x / D^¼."""

import math
from typing import Any

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.tables import Tables
from pellucid.parts.attentions import LinearAttentionConfig


class Features(Tables):
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
        along = x @ self.directions.to(x.dtype).mT
        features: Tensor = (along - x.square().sum(-1, keepdim=True) / 2).exp()
        return features / math.sqrt(len(self.directions))
