"""Softmax attention: Z = softmax(mask(cap(Q Kᵀ / √D) + B)) V."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine import caps
from pellucid.engine.attentions import AttentionInputs, HeadAttention
from pellucid.engine.dropout import Dropout
from pellucid.engine.layer_cache import Int8Cache, KeyValueCache, LayerCache
from pellucid.engine.linear import NARROW_IS_SLOW
from pellucid.engine.precision import sums_narrowly, wide_dtype, widen
from pellucid.engine.taps import TapScope, is_explicit

LANES = 16
"""Numbers of a CPU's widest vector."""
QUERIES = 64
"""Queries of a block, which is multiplied with the keys up to its last query: of a causal pattern, little
more than the half that is not zero is computed."""
MOST_SCORES = 1 << 24
"""Scores of a layer up to which they are held for the backward pass."""


class SoftmaxAttention(HeadAttention):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__(config, path)
        self.t = TapScope(path)
        self.n_kv_head, self.groups = config.n_kv_head, config.n_head // config.n_kv_head
        self.scale = config.d_head**-0.5 * config.positions.attention_scale
        self.cap = caps.make(config.score_cap)
        self.drop = Dropout(f"{path}.pattern", config.dropout.rates.get("pattern", 0.0))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        if cache is not None and inputs.plan is not None:
            k, v = cache.update(k, v, inputs.plan, q.dtype)
            k, v = self.t("k_all", k), self.t("v_all", v)
        if is_explicit() or self.cap is not None:  # the fused kernel has no cap
            return self._attend_explicit(q, k, v, inputs)
        if cache is None and q.requires_grad and sums_narrowly(q) and is_compiled():
            with torch.autocast("cpu", enabled=False):
                return self._attend_for_training(q, k, v, inputs)
        return self._attend_fused(q, k, v, inputs)

    def _attend_explicit(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """Returns z step by step, with a name for every value; query head h = k·G + g reads key head k.

        Half precision is computed in float32, as inside a kernel. Named values are held in the type of q;
        where no value needs a name, only the pattern is rounded to it.
        """
        t, held = self.t, q.dtype if is_explicit() else wide_dtype(q.dtype)
        grouped = widen(q).unflatten(1, (self.n_kv_head, self.groups)) @ widen(k)[:, :, None].mT
        scores = t("scores", (grouped.flatten(1, 2) * self.scale).to(held))
        if self.cap is not None:
            scores = t("capped", self.cap(scores))
        if inputs.bias is not None:
            scores = t("biased", (scores + inputs.bias).to(held))
        masked = t("masked", scores if inputs.mask is None else scores.masked_fill(~inputs.mask, -torch.inf))
        pattern = self.drop(t("pattern", softmax(masked)).to(q.dtype))
        z: Tensor = pattern.unflatten(1, (self.n_kv_head, self.groups)) @ v[:, :, None]
        return z.flatten(1, 2)

    def _attend_for_training(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """Returns z for q in half precision on a CPU by plain products, which a compiled step fuses and whose
        backward pass takes a fraction of the kernel's. They hold the pattern, so long sequences are computed
        by the kernel, in float32; on a CPU without instructions for half precision, all are.

        Scores are rounded to the type of q, and the softmax is computed in float32.
        """
        count = q.shape[2]
        if NARROW_IS_SLOW or q.shape[:3].numel() * k.shape[2] > MOST_SCORES:
            return self._attend_fused(widen(q), widen(k), widen(v), inputs).to(q.dtype)
        if not inputs.is_causal:
            return self._multiply(q, k, v, inputs)
        size = count if self.drop.current_rate else QUERIES  # dropout is drawn for the whole pattern
        blocks = [
            self._multiply(q[:, :, start : start + size], k[:, :, :stop], v[:, :, :stop], inputs)
            for start in range(0, count, size)
            for stop in [min(start + size, count)]
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 2)

    def _multiply(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """Returns softmax(mask(q kᵀ · scale + bias)) v; with a causal mask the last query sees all keys."""
        grouped = q.unflatten(1, (self.n_kv_head, self.groups)) @ k[:, :, None].mT
        scores = widen(grouped.flatten(1, 2)) * self.scale
        scores = scores if inputs.bias is None else scores + inputs.bias
        if inputs.is_causal:  # no row is empty
            places = torch.arange(k.shape[2], device=k.device)
            is_later = places > places[-q.shape[2] :, None]
            pattern = torch.softmax(scores.masked_fill(is_later, -torch.inf), -1)
        else:
            mask = inputs.mask
            pattern = softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf))
        held = self.drop(pattern.to(q.dtype)).unflatten(1, (self.n_kv_head, self.groups))
        z: Tensor = held @ v[:, :, None]
        return z.flatten(1, 2)

    def _attend_fused(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """Returns z from one kernel, which never stores the scores."""
        mask = inputs.mask
        if inputs.bias is not None:
            mask = inputs.bias if mask is None else inputs.bias.masked_fill(~mask, -torch.inf)
            mask = mask.to(q.dtype)
            mask = mask if mask.ndim == 4 else mask[None]
        rate = self.drop.current_rate
        if q.shape[2] == 1 and self.groups > 1 and not rate:
            # one query: the G heads that share a key head become G rows of one product
            rows = q.unflatten(1, (self.n_kv_head, self.groups)).squeeze(3)
            if mask is not None and mask.shape[1] > 1:
                mask = mask.unflatten(1, (self.n_kv_head, self.groups)).squeeze(3)
            z = F.scaled_dot_product_attention(rows, k, v, mask, scale=self.scale)
            z = z.flatten(1, 2).unsqueeze(2)
        else:
            z = F.scaled_dot_product_attention(
                q, k, v, mask, rate, is_causal=inputs.is_causal, scale=self.scale, enable_gqa=self.groups > 1
            )
        return self._keep_nan(z, q, k) if mask is None and 0 < k.shape[2] < LANES else z

    def _keep_nan(self, z: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Returns z, NaN for each query whose score with the first key, which all see, is NaN.

        Of fewer keys than its vectors have lanes, PyTorch's kernel for a CPU takes a query whose scores are
        all NaN for one that sees no key, and returns zeros."""
        first = widen(k.detach()[:, :, :1]).repeat_interleave(self.groups, 1)
        return z.masked_fill((widen(q.detach()) * first).sum(-1, keepdim=True).isnan(), torch.nan)

    @staticmethod
    def make_cache(
        config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any
    ) -> LayerCache:
        shape = (batch, config.n_kv_head, slots, config.d_head)
        return Int8Cache(shape, device) if dtype == torch.int8 else KeyValueCache(shape, dtype, device)


def is_compiled() -> bool:
    """Returns whether the step is compiled, as a training run's is where speed is wanted more than bits:
    products then round scores and pattern, where the kernel rounds its result alone."""
    return torch.compiler.is_compiling()


def softmax(scores: Tensor) -> Tensor:
    """Returns exp(s_i) / Σ_j exp(s_j) along the last axis, computed in float32 at least; a row of −∞ gives
    zeros and has a gradient of zeros, as in the specification."""
    is_empty = torch.isneginf(scores).all(-1, keepdim=True)
    pattern = torch.softmax(scores.masked_fill(is_empty, 0.0), -1, dtype=wide_dtype(scores.dtype))
    return pattern.masked_fill(is_empty, 0.0).to(scores.dtype)
