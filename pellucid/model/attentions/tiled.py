"""Softmax attention tile by tile: what fused kernels do anyway, and none of the values between has a name.

The tiles are the kernel's own; the specification's, which can be seen, give the same z.
"""

from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.attention import AttentionInputs
from pellucid.model.attentions import softmax
from pellucid.model.attentions.softmax import layer
from pellucid.model.cache import LayerCache
from pellucid.model.taps import Scope

__all__ = ["Mix", "layer"]


class Unnamed(Scope):
    """No taps: values pass as they are."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value


class Mix(softmax.Mix):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__(config, path)
        self.named, self.t = Scope(path), Unnamed(path)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        if cache is not None and inputs.plan is not None:
            k, v = cache.update(k, v, inputs.plan, q.dtype)
            k, v = self.named("k_all", k), self.named("v_all", v)
        # no kernel here caps its scores
        return self._explicit(q, k, v, inputs) if self.cap is not None else self._fused(q, k, v, inputs)
