"""Linear layers and the embedding; their parameters start uninitialized."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Shapes
from pellucid.engine.precision import is_row_invariant, sums_narrowly
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.taps import is_explicit


class Linear(nn.Linear):
    """x Wᵀ + b with W (out, in), which may be quantized; sizes and bias are those of the config's parameters
    under `path`."""

    weight: nn.Parameter | QuantizedTensor  # type: ignore[assignment]

    def __init__(self, shapes: Shapes, path: str) -> None:
        out, in_ = shapes[f"{path}.weight"]
        super().__init__(in_, out, bias=f"{path}.bias" in shapes)

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def multiply(self, x: Tensor) -> Tensor:
        """Returns x Wᵀ, without the bias."""
        return linear(x, self.weight, None)

    def widen_weight(self) -> Tensor:
        """Returns the W of x Wᵀ as it is applied, (out, in) float64."""
        return widen_weight(self.weight)


def widen_weight(weight: Tensor | QuantizedTensor) -> Tensor:
    """Returns the numbers of a weight, float64; those of a quantized one are computed in float64."""
    if isinstance(weight, QuantizedTensor):
        return weight.dequantize(torch.float64)
    return weight.detach().double()


def to_floats(weight: Tensor | QuantizedTensor) -> Tensor:
    """Returns the weight itself, or the numbers of a quantized one in its compute dtype."""
    return weight.dequantize() if isinstance(weight, QuantizedTensor) else weight


def project(x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """Returns the outputs of several layers for one input.

    In training on a CPU, one product with the concatenated weights is faster than several, forward and
    backward. On a GPU concatenating costs more than it saves: each product fills the device, and the
    gradients would have to be concatenated too.
    """
    separate = x.device.type != "cpu" or not torch.is_grad_enabled() or is_explicit()
    weights = [layer.weight for layer in layers if type(layer) is Linear and isinstance(layer.weight, Tensor)]
    biases = [layer.bias for layer in layers if layer.bias is not None]
    if separate or len(weights) < len(layers) or 0 < len(biases) < len(layers):
        return tuple(layer(x) for layer in layers)
    y = linear(x, torch.cat(tuple(weights)), torch.cat(tuple(biases)) if biases else None)
    return tuple(y.split([layer.out_features for layer in layers], -1))


class Embedding(nn.Embedding):
    """One row [C] for each token; the matrix may be quantized."""

    weight: nn.Parameter | QuantizedTensor  # type: ignore[assignment]

    def __init__(self, shapes: Shapes, path: str) -> None:
        rows, width = shapes[f"{path}.weight"]
        super().__init__(rows, width)

    def reset_parameters(self) -> None:
        pass

    def forward(self, ids: Tensor) -> Tensor:
        if isinstance(self.weight, QuantizedTensor):
            return self.weight.take_rows(ids)
        if sums_narrowly(self.weight):
            return F.embedding(ids, self.weight.float()).to(self.weight.dtype)
        return F.embedding(ids, self.weight)


NARROW_IS_SLOW = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
"""Whether the CPU has no instructions for products in half precision, so that they are computed one by
one."""
MANY_ROWS = 16
"""From this number of rows, converting the weight to float32 costs less than it saves."""


def linear(x: Tensor, weight: Tensor | QuantizedTensor, bias: Tensor | None) -> Tensor:
    """Returns x Wᵀ + b; on a CPU by the fastest of several ways, all of which accumulate in float32. A
    quantized weight is widened to the type of x, rounded once, and multiplied in the same ways."""
    if isinstance(weight, QuantizedTensor):
        weight = weight.dequantize(x.dtype)
    if x.device.type == "cpu":
        if is_row_invariant(x):
            return _multiply_rows(x, weight, bias)
        rows = x.numel() // weight.shape[1]
        if rows >= MANY_ROWS and x.element_size() == 2 and NARROW_IS_SLOW:
            y = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
            return y.to(x.dtype)
    return F.linear(x, weight, bias)


MOST_DECODED = 32
"""Rows up to which a product does not depend on their number: tokens of different texts, decoded together."""
BLOCK = 8
"""Rows of a call, where the library computes different numbers of rows in different ways."""


def _multiply_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns x Wᵀ + b by oneDNN; up to `MOST_DECODED` rows, a row's result does not depend on how many there
    are, bit for bit.

    The kernel for one row adds the products in another order than those for several, so one row is computed
    as two. Where the kernels for several differ too, as on some CPUs, rows are computed in blocks of equal
    size.
    """
    rows = x.reshape(-1, weight.shape[1])
    count = len(rows)
    if count <= MOST_DECODED and not _is_independent_of_rows(weight):
        padded = F.pad(rows, (0, 0, 0, -count % BLOCK))
        y = torch.cat([_multiply(block, weight, bias) for block in padded.split(BLOCK)])
    else:
        y = _multiply(rows.expand(2, -1) if count == 1 else rows, weight, bias)
    return y[:count].view(*x.shape[:-1], len(weight))


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
    return y


_TRIED: dict[tuple[int, int, int], bool] = {}
"""What was found for a shape and a number of threads."""


def _is_independent_of_rows(weight: Tensor) -> bool:
    """Returns whether a row's product has the same bits in a call of 2 rows as in one of any number of rows
    up to `MOST_DECODED`, on this machine; found by trying, once for each shape."""
    out, width = weight.shape
    key = (out, width, torch.get_num_threads())
    if key not in _TRIED:
        x = torch.randn(MOST_DECODED, width, generator=torch.Generator().manual_seed(0))
        few = (3, 4, 6, 8, 12, 16, 24, MOST_DECODED)
        counts = range(3, MOST_DECODED + 1) if weight.numel() < 2**20 else few
        pairs = torch.cat([_multiply(pair, weight, None) for pair in x.split(2)])
        _TRIED[key] = all(torch.equal(_multiply(x[:count], weight, None), pairs[:count]) for count in counts)
    return _TRIED[key]
