"""No residual: the sub-layer's output is the stream."""

from torch import Tensor


def join(x: Tensor, update: Tensor) -> Tensor:
    return update
