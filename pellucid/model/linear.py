"""Linear layers and the embedding; their parameters start uninitialized."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Shapes
from pellucid.model.precision import is_row_invariant
from pellucid.model.taps import is_explicit


class Linear(nn.Linear):
    """x Wᵀ + b with W (out, in); sizes and bias are those of the config's parameters under `path`."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        out, in_ = shapes[f"{path}.weight"]
        super().__init__(in_, out, bias=f"{path}.bias" in shapes)

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def project(x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """Returns the outputs of several layers for one input.

    In training on a CPU, one product with the concatenated weights is faster than several, forward and
    backward. On a GPU concatenating costs more than it saves: each product fills the device, and the
    gradients would have to be concatenated too.
    """
    separate = x.device.type != "cpu" or not torch.is_grad_enabled() or is_explicit()
    if separate or any(type(layer) is not Linear for layer in layers):
        return tuple(layer(x) for layer in layers)
    biases = [layer.bias for layer in layers if layer.bias is not None]
    if biases and len(biases) < len(layers):
        return tuple(layer(x) for layer in layers)
    weight = torch.cat(tuple(layer.weight for layer in layers))
    y = linear(x, weight, torch.cat(tuple(biases)) if biases else None)
    return tuple(y.split([layer.out_features for layer in layers], -1))


class Embedding(nn.Embedding):
    """One row [C] for each token."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        rows, width = shapes[f"{path}.weight"]
        super().__init__(rows, width)

    def reset_parameters(self) -> None:
        pass


NARROW_IS_SLOW = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
"""Whether the CPU has no instructions for products in half precision, so that they are computed one by
one."""
MANY_ROWS = 16
"""From this number of rows, converting the weight to float32 costs less than it saves."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns x Wᵀ + b; on a CPU by the fastest of several ways, all of which accumulate in float32."""
    if x.device.type == "cpu":
        if is_row_invariant(x):
            return _multiply_rows(x, weight, bias)
        rows = x.numel() // weight.shape[1]
        if rows >= MANY_ROWS and x.element_size() == 2 and NARROW_IS_SLOW:
            y = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
            return y.to(x.dtype)
    return F.linear(x, weight, bias)


def _multiply_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns x Wᵀ + b by oneDNN, where a row's result does not depend on the other rows, bit for bit.

    Its kernel for one row adds the products in another order than its kernels for several, so one row is
    computed as two. A decode step of SmolLM2 takes two thirds of the time that MKL's products take
    (`docs/log.md`).
    """
    rows = x.reshape(-1, weight.shape[1])
    if len(rows) == 1:
        rows = rows.expand(2, -1)
    y = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), weight, bias, "none", [], "")
    return y[: x.numel() // weight.shape[1]].view(*x.shape[:-1], len(weight))  # type: ignore[no-any-return]
