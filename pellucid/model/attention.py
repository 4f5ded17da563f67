"""Attention: each position takes from the others, P = softmax(Q Kᵀ / √D), as much as its query finds."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import ModelConfig, Shapes
from pellucid.model.cache import LayerCache
from pellucid.model.linear import Linear
from pellucid.model.positions import Turn, rotate
from pellucid.model.taps import Scope, explicit


class Where(NamedTuple):
    """What attention needs to know about places, the same in every layer.

    `seen` [B 1 T S] is true where a position may be looked at; None where all may, or where `causal` says
    it to the kernel without a table. `slots` and `reach` are the cache's.
    """

    turn: Turn | None
    seen: Tensor | None
    causal: bool = False
    slots: Tensor | None = None
    reach: int = 0


class Attention(nn.Module):
    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = Scope(path)
        self.n_head, self.n_kv_head, self.d_head = config.n_head, config.n_kv_head, config.d_head
        self.q_proj = Linear(shapes, f"{path}.q_proj")
        self.k_proj = Linear(shapes, f"{path}.k_proj")
        self.v_proj = Linear(shapes, f"{path}.v_proj")
        self.o_proj = Linear(shapes, f"{path}.o_proj") if f"{path}.o_proj.weight" in shapes else None

    def forward(self, x: Tensor, where: Where, cache: LayerCache | None = None) -> Tensor:
        t = self.t
        q = t("q", self._heads(self.q_proj(x), self.n_head))
        k = t("k", self._heads(self.k_proj(x), self.n_kv_head))
        v = t("v", self._heads(self.v_proj(x), self.n_kv_head))
        if where.turn:
            q, k = t("q_rot", rotate(q, where.turn)), t("k_rot", rotate(k, where.turn))
        if cache is not None and where.slots is not None:
            cache.write(k, v, where.slots)
            k, v = cache.read(where.reach, q.dtype)
            k, v = t("k_all", k), t("v_all", v)
        z = t("z", self._explicit(q, k, v, where) if explicit() else self._fused(q, k, v, where))
        joined = z.transpose(1, 2).flatten(2)
        return joined if self.o_proj is None else self.o_proj(joined)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """[B T (heads D)] → [B heads T D]."""
        batch, count, _ = x.shape
        return x.view(batch, count, heads, self.d_head).transpose(1, 2)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, where: Where) -> Tensor:
        """Z = softmax(mask(Q Kᵀ / √D)) V, a named value at each step; query head h = k·G + g reads k."""
        t, groups = self.t, self.n_head // self.n_kv_head
        per_key = q.unflatten(1, (self.n_kv_head, groups)) @ k[:, :, None].mT
        scores = t("scores", per_key.flatten(1, 2) * self.d_head**-0.5)
        masked = t("masked", scores if where.seen is None else scores.masked_fill(~where.seen, -torch.inf))
        pattern = t("pattern", softmax(masked))
        mixed: Tensor = pattern.unflatten(1, (self.n_kv_head, groups)) @ v[:, :, None]
        return mixed.flatten(1, 2)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, where: Where) -> Tensor:
        """The same in one kernel, which keeps none of the values between."""
        groups = self.n_head // self.n_kv_head
        if q.shape[2] == 1 and groups > 1:  # one query: the heads that share a key are rows of one product
            folded = q.unflatten(1, (self.n_kv_head, groups)).squeeze(3)
            return F.scaled_dot_product_attention(folded, k, v, where.seen).flatten(1, 2).unsqueeze(2)
        return F.scaled_dot_product_attention(
            q, k, v, where.seen, is_causal=where.causal, enable_gqa=groups > 1
        )


def softmax(scores: Tensor) -> Tensor:
    """Along the last axis; a row of −∞ alone gives zeros and gets zeros back, as in the specification."""
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32
    nothing = torch.isneginf(scores).all(-1, keepdim=True)
    pattern = torch.softmax(scores.masked_fill(nothing, 0.0), -1, dtype=exact)
    return pattern.masked_fill(nothing, 0.0).to(scores.dtype)
