"""The scaled residual: X + α f(X)."""

import torch
from torch import Tensor

from pellucid.parts.residuals import ScaledResidual


def join(x: Tensor, update: Tensor, residual: ScaledResidual) -> Tensor:
    return torch.add(x, update, alpha=residual.alpha)
