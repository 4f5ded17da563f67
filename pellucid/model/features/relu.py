"""max(0, x)."""

import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig


class Features(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)
