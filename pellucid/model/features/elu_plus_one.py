"""elu(x) + 1: x + 1 above 0, e^x below."""

import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig


class Features(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x + 1, x.clamp_max(0).exp())  # elu(x) + 1 would round e^x − 1 on the way
