"""The layers that hold parameters. They start empty: an initialisation or a file fills them."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Shapes


class Linear(nn.Linear):
    """x Wᵀ + b with W (out, in); sizes and bias as the config's parameters under this path say."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        out, in_ = shapes[f"{path}.weight"]
        super().__init__(in_, out, bias=f"{path}.bias" in shapes)

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Embedding(nn.Embedding):
    """One row of channels for each token."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        rows, width = shapes[f"{path}.weight"]
        super().__init__(rows, width)

    def reset_parameters(self) -> None:
        pass


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b. A single row on a CPU, the step of every decoder, takes another way to the same sums: the
    library's matrix-vector product in float32 uses one thread and a third of the memory's speed, its product
    of a batch of smaller matrices all of both."""
    if x.numel() == weight.shape[1] and x.dtype == torch.float32 and x.device.type == "cpu":
        parts = math.gcd(weight.shape[0], 16)
        y = torch.bmm(weight.view(parts, -1, weight.shape[1]), x.reshape(1, -1, 1).expand(parts, -1, 1))
        y = y.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias
    return F.linear(x, weight, bias)
