"""No residual: the sub-layer's output is the stream."""

from torch import Tensor

from pellucid.parts.residuals import NoResidual


def join(x: Tensor, update: Tensor, residual: NoResidual) -> Tensor:
    return update
