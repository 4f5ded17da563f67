"""Tiled softmax attention (FlashAttention): the fused kernel of softmax attention, without named values.

The tiles are the kernel's own. The specification computes the same z from tiles that can be inspected.
"""

from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine.attentions import AttentionInputs
from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.layer_cache import LayerCache
from pellucid.engine.taps import TapScope


class SilentScope(TapScope):
    """A scope whose taps offer nothing: values pass unchanged."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value


class TiledAttention(SoftmaxAttention):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__(config, path)
        self.cache_tap, self.t = TapScope(path), SilentScope(path)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        if cache is not None and inputs.plan is not None:
            k, v = cache.update(k, v, inputs.plan, q.dtype)
            k, v = self.cache_tap("k_all", k), self.cache_tap("v_all", v)
        attend = self._attend_fused if self.cap is None else self._attend_explicit  # the kernel has no cap
        return attend(q, k, v, inputs)
