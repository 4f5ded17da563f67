"""RMSNorm: Y = γ ⊙ X r with r = 1 / √(mean X² + eps)."""

import torch.nn.functional as F
from torch import Tensor

from pellucid.config import Shapes
from pellucid.model.norms import Gain, wide
from pellucid.model.taps import is_explicit
from pellucid.parts.norms import RmsNormConfig


class Norm(Gain):
    def __init__(self, shapes: Shapes, path: str, norm: RmsNormConfig) -> None:
        super().__init__(shapes, path)
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        if is_explicit():
            return self.gain(self.unit_size(wide(x), self.eps), x.dtype)
        y = F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return self.t("out", y if self.bias is None else y + self.bias)
