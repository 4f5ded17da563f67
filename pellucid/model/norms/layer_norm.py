"""LayerNorm: RMSNorm of the stream without its mean."""

import torch.nn.functional as F
from torch import Tensor

from pellucid.config import Shapes
from pellucid.model.norms import Gain, wide
from pellucid.model.taps import is_explicit
from pellucid.parts.norms import LayerNormConfig


class Norm(Gain):
    def __init__(self, shapes: Shapes, path: str, norm: LayerNormConfig) -> None:
        super().__init__(shapes, path)
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        if is_explicit():
            mean = self.t("mean", wide(x).mean(-1, keepdim=True))
            return self.gain(self.unit_size(self.t("centered", wide(x) - mean), self.eps), x.dtype)
        return self.t("out", F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps))
