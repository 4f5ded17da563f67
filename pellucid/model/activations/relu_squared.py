"""The square of ReLU: max(0, x)²."""

import torch
from torch import Tensor


def curve(x: Tensor) -> Tensor:
    return torch.relu(x).square()
