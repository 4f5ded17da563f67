"""The norms, one file per kind of `parts/norms/`; each has a module `Norm(shapes, path, norm)`."""

import importlib

import torch
from torch import Tensor, nn

from pellucid.config import Shapes
from pellucid.model.taps import Scope
from pellucid.parts.norms import NormConfig


def make(shapes: Shapes, path: str, norm: NormConfig) -> nn.Module:
    """The module that reads the stream for a sub-layer."""
    module: nn.Module = importlib.import_module(f"{__name__}.{norm.kind}").Norm(shapes, path, norm)
    return module


class Gain(nn.Module):
    """Y = γ ⊙ X̂ (+ β), the end that all norms share. Half precision is normed in float32."""

    def __init__(self, shapes: Shapes, path: str) -> None:
        super().__init__()
        self.t = Scope(path)
        self.weight = nn.Parameter(torch.empty(shapes[f"{path}.weight"]))
        shift = f"{path}.bias" in shapes
        self.bias = nn.Parameter(torch.empty(shapes[f"{path}.bias"])) if shift else None

    def unit_size(self, x: Tensor, eps: float) -> Tensor:
        """X̂ = X r with r = 1 / √(mean X² + eps)."""
        rstd = self.t("rstd", torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))
        return self.t("normed", x * rstd)

    def gain(self, normed: Tensor, dtype: torch.dtype) -> Tensor:
        y = normed * self.weight
        y = y if self.bias is None else y + self.bias
        return self.t("out", y.to(dtype))


def wide(x: Tensor) -> Tensor:
    """At least float32: sums of squares of half-precision numbers need it."""
    return x.float() if x.element_size() < 4 else x
