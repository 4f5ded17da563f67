"""Linear attention: Z = φ(Q) (φ(K)ᵀ V), each row divided by φ(Q) · Σ φ(K).

A column of ones beside the values makes both sums one product: S and n stand side by side, [R (D + 1)]. Under
the causal mask the positions come in chunks: what lies in the same chunk is compared pair by pair, all before
it is read from the running sum. All of it in float32 at least, for a sum forgets what is small beside it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.errors import UsageError
from pellucid.model import features
from pellucid.model.attention import AttentionInputs
from pellucid.model.cache import LayerCache, Plan
from pellucid.model.taps import Scope, is_explicit
from pellucid.parts.attentions import LinearAttentionConfig


class Mix(nn.Module):
    def __init__(self, config: ModelConfig, path: str) -> None:
        super().__init__()
        assert isinstance(config.attention, LinearAttentionConfig)
        self.t = Scope(path)
        self.n_kv_head, self.groups = config.n_kv_head, config.n_head // config.n_kv_head
        self.causal, self.chunk = config.mask.causal, config.attention.chunk
        self.features = features.make(config)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, cache: LayerCache | None
    ) -> Tensor:
        exact = torch.float64 if q.dtype == torch.float64 else torch.float32
        q_feat = self.t("q_feat", self.features(q.to(exact)))
        k_feat = self.features(k.to(exact))
        values = torch.cat((v.to(exact), torch.ones_like(v[..., :1], dtype=exact)), -1)
        if cache is not None and inputs.plan is not None:  # of the past there is a sum, and no features
            if inputs.plan.real is not None:
                k_feat = k_feat * inputs.plan.real[:, None, :, None]
            before, _ = cache.update(k_feat, values, inputs.plan, exact)
            return self._in_chunks(q_feat, k_feat, values, before).to(q.dtype)
        k_feat = self.t("k_feat", k_feat)
        # given positions and segments decide who sees whom; padding leaves the others in their order
        is_ordered = inputs.seen is None or inputs.real is not None or not self.causal
        if is_explicit() or inputs.is_packed or not is_ordered:
            return self._explicit(q_feat, k_feat, v.to(exact), inputs).to(q.dtype)
        if inputs.real is not None:
            k_feat = k_feat * inputs.real[:, None, :, None]
        if self.causal:
            return self._in_chunks(q_feat, k_feat, values, None).to(q.dtype)
        per_key = q_feat.unflatten(1, (self.n_kv_head, self.groups)).flatten(2, 3)
        z: Tensor = divided(per_key @ (k_feat.mT @ values)).unflatten(2, (self.groups, -1))
        return z.flatten(1, 2).to(q.dtype)

    def _explicit(self, q_feat: Tensor, k_feat: Tensor, v: Tensor, inputs: AttentionInputs) -> Tensor:
        """A named value at each step; query head h = k·G + g reads k."""
        t = self.t
        per_key = q_feat.unflatten(1, (self.n_kv_head, self.groups)) @ k_feat[:, :, None].mT
        kernel = per_key.flatten(1, 2)
        kernel = t("kernel", kernel if inputs.seen is None else kernel * inputs.seen)
        total = kernel.sum(-1, keepdim=True)
        pattern = t("pattern", torch.where(total > 0, kernel / torch.where(total > 0, total, 1.0), 0.0))
        mixed: Tensor = pattern.unflatten(1, (self.n_kv_head, self.groups)) @ v[:, :, None]
        return mixed.flatten(1, 2)

    def _in_chunks(self, q_feat: Tensor, k_feat: Tensor, values: Tensor, before: Tensor | None) -> Tensor:
        """z [B H T D] from `before` [B K R (D + 1)], the sum over all that came earlier."""
        count = q_feat.shape[2]
        chunk = min(count, self.chunk)
        blank = -count % chunk
        if blank:
            q_feat, k_feat, values = (F.pad(x, (0, 0, 0, blank)) for x in (q_feat, k_feat, values))
        keys, values = (x.unflatten(2, (-1, chunk)) for x in (k_feat, values))  # [B K N chunk …]
        queries = q_feat.unflatten(1, (self.n_kv_head, self.groups)).unflatten(3, (-1, chunk))
        queries = queries.transpose(2, 3).flatten(3, 4)  # [B K N (G chunk) R]
        near = (queries @ keys.mT).unflatten(3, (self.groups, chunk)).tril().flatten(3, 4)
        read = near @ values
        if keys.shape[2] > 1:
            sums = keys.mT @ values  # [B K N R (D + 1)]
            sums = F.pad(sums.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
            read = read + queries @ (sums if before is None else sums + before[:, :, None])
        elif before is not None:
            read = read + queries @ before[:, :, None]
        z: Tensor = divided(read).unflatten(3, (self.groups, chunk)).transpose(2, 3)
        return z.flatten(3, 4).flatten(1, 2)[:, :, :count]


def divided(read: Tensor) -> Tensor:
    """All but the last channel, divided by the last; 0 where that is 0."""
    mixed, total = read[..., :-1], read[..., -1:]
    return torch.where(total > 0, mixed / torch.where(total > 0, total, 1.0), 0.0)


class StateLayer(LayerCache):
    """The sum Σ φ(k)ᵀ (v, 1) over all tokens read, [B K R (D + 1)]: as large after one as after a million.

    What was added cannot be taken out again, so a row is kept or cleared, never cut.
    """

    cuttable = False

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.buffers = [torch.zeros(shape, dtype=dtype, device=device)]

    def update(self, k: Tensor, v: Tensor, plan: Plan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Add the new features [B K T R] times values [B K T (D + 1)]; the sum before them, and with them."""
        before = self.buffers[0].to(dtype, copy=True)
        after = before + (k.mT @ v).detach()  # what is kept is past: no gradient flows into it
        self.buffers[0].copy_(after)
        return before, after

    def clear(self, rows: Tensor) -> None:
        self.buffers[0].masked_fill_(rows[:, None, None, None], 0.0)


def layer(config: ModelConfig, batch: int, slots: int, dtype: torch.dtype, device: Any) -> LayerCache:
    if dtype == torch.int8:
        raise UsageError(
            "linear attention keeps one running sum, and in 8 bits every token would round it anew: ask for "
            'a float32 cache, which is small at any length, or for attention "softmax".'
        )
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    shape = (batch, config.n_kv_head, config.attention.feature_count(config), config.d_head + 1)
    return StateLayer(shape, exact, device)
