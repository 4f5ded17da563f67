"""Softmax attention: Z = softmax(mask(cap(Q Kᵀ / √D) + B)) V."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model import caps
from pellucid.model.attention import AttentionInputs
from pellucid.model.cache import FullLayer, Int8Layer, LayerCache
from pellucid.model.dropout import Dropout
from pellucid.model.taps import Scope, is_explicit


class Mix(nn.Module):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__()
        self.t = Scope(path)
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
        if is_explicit() or self.cap is not None:  # no kernel here caps its scores
            return self._explicit(q, k, v, inputs)
        return self._fused(q, k, v, inputs)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """A named value at each step; query head h = k·G + g reads k."""
        t = self.t
        per_key = q.unflatten(1, (self.n_kv_head, self.groups)) @ k[:, :, None].mT
        scores = t("scores", per_key.flatten(1, 2) * self.scale)
        if self.cap is not None:
            scores = t("capped", self.cap(scores))
        if inputs.bias is not None:
            scores = t("biased", (scores + inputs.bias).to(q.dtype))
        masked = t("masked", scores if inputs.seen is None else scores.masked_fill(~inputs.seen, -torch.inf))
        pattern = self.drop(t("pattern", softmax(masked)))
        mixed: Tensor = pattern.unflatten(1, (self.n_kv_head, self.groups)) @ v[:, :, None]
        return mixed.flatten(1, 2)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """The same in one kernel, which keeps none of the values between."""
        seen = inputs.seen
        if inputs.bias is not None:
            seen = inputs.bias if seen is None else inputs.bias.masked_fill(~seen, -torch.inf)
            seen = seen.to(q.dtype)
            seen = seen if seen.ndim == 4 else seen[None]
        rate = self.drop.now
        if q.shape[2] == 1 and self.groups > 1 and not rate:
            # one query: the heads that share a key are rows of one product
            folded = q.unflatten(1, (self.n_kv_head, self.groups)).squeeze(3)
            if seen is not None and seen.shape[1] > 1:
                seen = seen.unflatten(1, (self.n_kv_head, self.groups)).squeeze(3)
            z = F.scaled_dot_product_attention(folded, k, v, seen, scale=self.scale)
            return z.flatten(1, 2).unsqueeze(2)
        return F.scaled_dot_product_attention(
            q, k, v, seen, rate, is_causal=inputs.causal, scale=self.scale, enable_gqa=self.groups > 1
        )


def layer(config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any) -> LayerCache:
    shape = (batch, config.n_kv_head, slots, config.d_head)
    return Int8Layer(shape, device) if dtype == torch.int8 else FullLayer(shape, dtype, device)


def softmax(scores: Tensor) -> Tensor:
    """Along the last axis; a row of −∞ alone gives zeros and gets zeros back, as in the specification."""
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32
    nothing = torch.isneginf(scores).all(-1, keepdim=True)
    pattern = torch.softmax(scores.masked_fill(nothing, 0.0), -1, dtype=exact)
    return pattern.masked_fill(nothing, 0.0).to(scores.dtype)
