"""GELU by tanh: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""

import torch.nn.functional as F
from torch import Tensor


def curve(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")
