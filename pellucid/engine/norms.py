"""Norms of a position's channels; the kinds of `parts/norms.py`. Half precision is normalized in float32."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import Shapes
from pellucid.engine.precision import sums_narrowly, widen
from pellucid.engine.taps import TapScope, is_explicit
from pellucid.parts.norms import LayerNormConfig, NoNorm, NormConfig, RmsNormConfig


def make(shapes: Shapes, path: str, norm: NormConfig) -> nn.Module:
    """Returns the norm whose parameters are those under `path`."""
    return registry.class_of(__name__, norm.kind, "norm", nn.Module)(shapes, path, norm)


class GainNorm(nn.Module):
    """The part that LayerNorm and RMSNorm share: X̂ = X / √(mean X² + eps), and Y = γ ⊙ X̂ (+ β)."""

    def __init__(self, shapes: Shapes, path: str, norm: LayerNormConfig | RmsNormConfig) -> None:
        super().__init__()
        self.t, self.eps = TapScope(path), norm.eps
        self.weight = nn.Parameter(torch.empty(shapes[f"{path}.weight"]))
        has_bias = f"{path}.bias" in shapes
        self.bias = nn.Parameter(torch.empty(shapes[f"{path}.bias"])) if has_bias else None

    def normalize(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns Y in this type, with a name for every value on the way."""
        rstd = self.t("rstd", torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))
        y = self.t("normed", x * rstd) * self.weight
        y = y if self.bias is None else y + self.bias
        return self.t("out", y.to(dtype))


class LayerNorm(GainNorm):
    """LayerNorm: RMSNorm of X without its mean."""

    kind: ClassVar[str] = "layer_norm"

    def forward(self, x: Tensor) -> Tensor:
        if is_explicit():
            mean = self.t("mean", widen(x).mean(-1, keepdim=True))
            return self.normalize(self.t("centered", widen(x) - mean), x.dtype)
        if sums_narrowly(x):
            bias = None if self.bias is None else self.bias.float()
            y = F.layer_norm(x.float(), x.shape[-1:], self.weight.float(), bias, self.eps)
            return self.t("out", y.to(x.dtype))
        return self.t("out", F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps))


class RmsNorm(GainNorm):
    """RMSNorm: Y = γ ⊙ X / √(mean X² + eps)."""

    kind: ClassVar[str] = "rms_norm"

    def forward(self, x: Tensor) -> Tensor:
        if is_explicit():
            return self.normalize(widen(x), x.dtype)
        y = F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return self.t("out", y if self.bias is None else y + self.bias)


class IdentityNorm(nn.Module):
    """No norm: the input under the name of the output."""

    kind: ClassVar[str] = "none"

    def __init__(self, shapes: Shapes, path: str, norm: NoNorm) -> None:
        super().__init__()
        self.t = TapScope(path)

    def forward(self, x: Tensor) -> Tensor:
        return self.t("out", x)
