"""The residual connection: X + f(X)."""

from torch import Tensor


def join(x: Tensor, update: Tensor) -> Tensor:
    return x + update
