"""The layers that hold parameters. Each starts empty: the model's initialization or a file fills it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Shapes
from pellucid.model.taps import is_explicit


class Linear(nn.Linear):
    """x Wᵀ + b with W (out, in); sizes and bias as the config's parameters under this path say."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        out, in_ = shapes[f"{path}.weight"]
        super().__init__(in_, out, bias=f"{path}.bias" in shapes)

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def project(x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """Several layers of one input. In training on a CPU one product does the work of all, and of all their
    gradients, quicker than several narrow ones. Elsewhere joining costs more than it saves: each fills a
    GPU, and their gradients would be put side by side in memory first."""
    apart = x.device.type != "cpu" or not torch.is_grad_enabled() or is_explicit()
    if apart or any(type(layer) is not Linear for layer in layers):
        return tuple(layer(x) for layer in layers)
    biases = [layer.bias for layer in layers if layer.bias is not None]
    if biases and len(biases) < len(layers):
        return tuple(layer(x) for layer in layers)
    weight = torch.cat(tuple(layer.weight for layer in layers))
    y = linear(x, weight, torch.cat(tuple(biases)) if biases else None)
    return tuple(y.split([layer.out_features for layer in layers], -1))


class Embedding(nn.Embedding):
    """One row of channels for each token."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        rows, width = shapes[f"{path}.weight"]
        super().__init__(rows, width)

    def reset_parameters(self) -> None:
        pass


NARROW_IS_SLOW = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
"""This processor has no instructions for products in half precision, so the library makes them one by one."""
MANY_ROWS = 16
"""From so many rows on, widening the weight costs less than it saves."""
PARTS = 16
"""Matrices that one row's product is divided into; the threads share them."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, on a CPU by the quickest way to the same sums, which are float32's in any case."""
    if x.device.type == "cpu":
        rows = x.numel() // weight.shape[1]
        if rows == 1 and x.dtype == torch.float32:
            return _one_row(x, weight, bias)
        if rows >= MANY_ROWS and x.element_size() == 2 and NARROW_IS_SLOW:
            y = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
            return y.to(x.dtype)
    return F.linear(x, weight, bias)


def _one_row(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The step of every decoder. The library's matrix-vector product uses one thread and a third of the
    memory's speed; its product of a batch of smaller matrices uses all of both."""
    out, width = weight.shape
    even = out // PARTS * PARTS
    column = x.reshape(1, 1, -1).expand(PARTS, 1, -1).mT
    y = torch.bmm(weight[:even].view(PARTS, -1, width), column).view(*x.shape[:-1], -1)
    if even < out:
        y = torch.cat((y, F.linear(x, weight[even:])), -1)
    return y if bias is None else y + bias
