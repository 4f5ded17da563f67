"""Multi-head attention: Q, K, V = X W_Q, X W_K, X W_V; each head's z = attend(q, k, v); O = concat(z) W_O.

`attend` is one of `attentions/`, as the config says; the rest is the same for all. `t(name, value)` is a tap:
like a forward hook, it offers a value under its name to a recording, which may replace it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pellucid.base.names import HEAD_OUT
from pellucid.config import ModelConfig, Shapes
from pellucid.engine import attentions, norms
from pellucid.engine.attentions import AttentionInputs
from pellucid.engine.layer_cache import LayerCache
from pellucid.engine.linear import Linear, project
from pellucid.engine.positions import rotate
from pellucid.engine.taps import TapScope, is_requested


class Attention(nn.Module):
    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = TapScope(path)
        self.n_head, self.n_kv_head, self.d_head = config.n_head, config.n_kv_head, config.d_head
        self.q_proj = Linear(shapes, f"{path}.q_proj")
        self.k_proj = Linear(shapes, f"{path}.k_proj")
        self.v_proj = Linear(shapes, f"{path}.v_proj")
        self.has_qk_norm = not config.qk_norm.is_none
        if self.has_qk_norm:
            self.q_norm = norms.make(shapes, f"{path}.q_norm", config.qk_norm)
            self.k_norm = norms.make(shapes, f"{path}.k_norm", config.qk_norm)
        self.attend = attentions.make(config, path)
        self.o_proj = Linear(shapes, f"{path}.o_proj") if f"{path}.o_proj.weight" in shapes else None

    def forward(
        self, x: Tensor, inputs: AttentionInputs, cache: LayerCache | Sequence[LayerCache] | None = None
    ) -> Tensor:
        t = self.t
        q, k, v = project(x, self.q_proj, self.k_proj, self.v_proj)
        q = t("q", self._split_heads(q, self.n_head))
        k = t("k", self._split_heads(k, self.n_kv_head))
        v = t("v", self._split_heads(v, self.n_kv_head))
        if self.has_qk_norm:
            q, k = t("q_normed", self.q_norm(q)), t("k_normed", self.k_norm(k))
        if inputs.rotation:
            q, k = t("q_rot", rotate(q, inputs.rotation)), t("k_rot", rotate(k, inputs.rotation))
        z = t("z", self._attend(q, k, v, inputs, cache))
        if is_requested(f"{t.prefix}.{HEAD_OUT}"):
            return self._sum_heads(z)
        heads = z.transpose(1, 2).flatten(2)  # [B H T D] → [B T (H D)]
        return heads if self.o_proj is None else self.o_proj(heads)

    def _sum_heads(self, z: Tensor) -> Tensor:
        """Returns the attention output [B T C] = Σ_h head_out (+ b_O), from z [B H T D]."""
        batch, _, length, _ = z.shape
        alone = z.new_zeros(batch, self.n_head, length, self.n_head, self.d_head)
        # block-diagonal: each head's z, zeros for the others
        alone.diagonal(dim1=1, dim2=3).copy_(z.permute(0, 2, 3, 1))
        head_out, bias = alone.flatten(3), None
        if self.o_proj is not None:
            head_out, bias = self.o_proj.multiply(head_out), self.o_proj.bias
        out = self.t(HEAD_OUT, head_out).sum(1)
        return out if bias is None else out + bias

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        inputs: AttentionInputs,
        cache: LayerCache | Sequence[LayerCache] | None,
    ) -> Tensor:
        """Returns z [B H T D]; of several segments, each with its own cache, from one call for each: what a
        row computes does not depend on the lengths of the others."""
        if isinstance(cache, LayerCache) or cache is None:
            z: Tensor = self.attend(q, k, v, inputs, cache)
            return z
        parts = []
        for segment, row in zip(inputs.segments, cache, strict=True):
            at = (slice(None), slice(None), segment.span)
            parts.append(self.attend(q[at], k[at], v[at], segment.inputs, row))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def _split_heads(self, x: Tensor, n_heads: int) -> Tensor:
        """[B T (heads D)] → [B heads T D]."""
        batch, length, _ = x.shape
        return x.view(batch, length, n_heads, self.d_head).transpose(1, 2)
