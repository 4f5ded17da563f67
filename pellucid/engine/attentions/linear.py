"""Linear attention: Z = φ(Q) (φ(K)ᵀ V), each row divided by φ(Q) · Σ φ(K).

A column of ones appended to the values computes numerator and denominator in one product, [R (D + 1)]. Under
the causal mask positions are processed in chunks: pairs within a chunk by their product φ(q)·φ(k), all
earlier positions through the running sum. Everything is computed in float32 at least, because a long sum
loses small addends.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine import features
from pellucid.engine.attentions import AttentionInputs, HeadAttention
from pellucid.engine.layer_cache import CachePlan, LayerCache
from pellucid.engine.precision import wide_dtype
from pellucid.engine.taps import TapScope, is_explicit
from pellucid.parts.attentions import LinearAttentionConfig


class LinearAttention(HeadAttention):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__(config, path)
        assert isinstance(config.attention, LinearAttentionConfig)
        self.t = TapScope(path)
        self.n_kv_head, self.groups = config.n_kv_head, config.n_head // config.n_kv_head
        self.is_causal, self.chunk = config.mask.causal, config.attention.chunk
        self.features = features.make(config)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        wide = wide_dtype(q.dtype)
        q_feat = self.t("q_feat", self.features(q.to(wide)))
        k_feat = self.features(k.to(wide))
        values = torch.cat((v.to(wide), torch.ones_like(v[..., :1], dtype=wide)), -1)
        if cache is not None and inputs.plan is not None:  # the cache holds a sum, not the past's features
            if inputs.plan.is_token is not None:
                k_feat = k_feat * inputs.plan.is_token[:, None, :, None]
            past, _ = cache.update(k_feat, values, inputs.plan, wide)
            return self._attend_in_chunks(q_feat, k_feat, values, past).to(q.dtype)
        k_feat = self.t("k_feat", k_feat)
        # given positions and segments need the mask; padding alone does not change the order
        is_ordered = inputs.mask is None or inputs.is_token is not None or not self.is_causal
        if is_explicit() or inputs.is_packed or not is_ordered:
            return self._attend_explicit(q_feat, k_feat, v.to(wide), inputs).to(q.dtype)
        if inputs.is_token is not None:
            k_feat = k_feat * inputs.is_token[:, None, :, None]
        if self.is_causal:
            return self._attend_in_chunks(q_feat, k_feat, values, None).to(q.dtype)
        grouped = q_feat.unflatten(1, (self.n_kv_head, self.groups)).flatten(2, 3)
        z: Tensor = _divide_by_last(grouped @ (k_feat.mT @ values)).unflatten(2, (self.groups, -1))
        return z.flatten(1, 2).to(q.dtype)

    def _attend_explicit(self, q_feat: Tensor, k_feat: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """Returns z step by step, with a name for every value; query head h = k·G + g reads key head k."""
        t = self.t
        grouped = q_feat.unflatten(1, (self.n_kv_head, self.groups)) @ k_feat[:, :, None].mT
        kernel = grouped.flatten(1, 2)
        kernel = t("kernel", kernel if inputs.mask is None else kernel * inputs.mask)
        total = kernel.sum(-1, keepdim=True)
        pattern = t("pattern", torch.where(total > 0, kernel / torch.where(total > 0, total, 1.0), 0.0))
        z: Tensor = pattern.unflatten(1, (self.n_kv_head, self.groups)) @ v[:, :, None]
        return z.flatten(1, 2)

    def _attend_in_chunks(
        self, q_feat: Tensor, k_feat: Tensor, values: Tensor, past: Tensor | None
    ) -> Tensor:
        """Returns z [B H T D]; `past` [B K R (D + 1)] is the sum over all earlier tokens."""
        length = q_feat.shape[2]
        chunk = min(length, self.chunk)
        padding = -length % chunk
        if padding:
            q_feat, k_feat, values = (F.pad(x, (0, 0, 0, padding)) for x in (q_feat, k_feat, values))
        keys, values = (x.unflatten(2, (-1, chunk)) for x in (k_feat, values))  # [B K N chunk …]
        queries = q_feat.unflatten(1, (self.n_kv_head, self.groups)).unflatten(3, (-1, chunk))
        queries = queries.transpose(2, 3).flatten(3, 4)  # [B K N (G chunk) R]
        in_chunk = (queries @ keys.mT).unflatten(3, (self.groups, chunk)).tril().flatten(3, 4)
        sums = in_chunk @ values
        if keys.shape[2] > 1:
            before = keys.mT @ values  # [B K N R (D + 1)]
            before = F.pad(before.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
            sums = sums + queries @ (before if past is None else before + past[:, :, None])
        elif past is not None:
            sums = sums + queries @ past[:, :, None]
        z: Tensor = _divide_by_last(sums).unflatten(3, (self.groups, chunk)).transpose(2, 3)
        return z.flatten(3, 4).flatten(1, 2)[:, :, :length]

    @staticmethod
    def make_cache(
        config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any
    ) -> LayerCache:
        if dtype == torch.int8:
            raise UsageError(
                "linear attention caches one running sum, and int8 would round the whole sum at every token. "
                'Use a float32 cache, whose size does not grow with the length, or attention "softmax".'
            )
        shape = (batch, config.n_kv_head, config.attention.feature_count(config), config.d_head + 1)
        return RunningSumCache(shape, wide_dtype(dtype), device)


def _divide_by_last(sums: Tensor) -> Tensor:
    """Returns all channels but the last, divided by the last; 0 where that is 0."""
    numerator, total = sums[..., :-1], sums[..., -1:]
    return torch.where(total > 0, numerator / torch.where(total > 0, total, 1.0), 0.0)


class RunningSumCache(LayerCache):
    """The sum Σ φ(k)ᵀ (v, 1) over all tokens so far, [B K R (D + 1)]; its size does not grow with their
    number.

    A token cannot be subtracted again, so a row is kept whole or cleared, never cropped.
    """

    can_rewind = False

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.buffers = [torch.zeros(shape, dtype=dtype, device=device)]

    def update(self, k: Tensor, v: Tensor, plan: CachePlan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Adds the new features [B K T R] times values [B K T (D + 1)]; returns the sums before and after."""
        before = self.buffers[0].to(dtype, copy=True)
        after = before + (k.mT @ v).detach()  # no gradient flows into the cache
        self.buffers[0].copy_(after)
        return before, after

    def clear(self, rows: Tensor) -> None:
        self.buffers[0].masked_fill_(rows[:, None, None, None], 0.0)
