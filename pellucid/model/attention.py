"""Attention: queries, keys and values, what each position takes from the others, and what that writes.

How much is taken is the config's choice, one file per form in `attentions/`; the rest is the same for all.
"""

from typing import NamedTuple

from torch import Tensor, nn

from pellucid.config import ModelConfig, Shapes
from pellucid.model import attentions, norms
from pellucid.model.cache import LayerCache, Plan
from pellucid.model.linear import Linear, together
from pellucid.model.positions import Rotation, rotate
from pellucid.model.taps import Scope


class AttentionInputs(NamedTuple):
    """What attention needs to know about places, the same in every layer.

    `bias` [H T S] is added to the scores; `seen` [B 1 T S] is true where a position may be looked at, None
    where all may, or where `causal` says it to the kernel without a table; `real` [B S] is false for padding;
    `plan` is the cache's; `is_packed` says that `seen` separates the documents of a row.
    """

    rotation: Rotation | None
    bias: Tensor | None
    seen: Tensor | None
    causal: bool = False
    real: Tensor | None = None
    plan: Plan | None = None
    is_packed: bool = False


class Attention(nn.Module):
    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = Scope(path)
        self.n_head, self.n_kv_head, self.d_head = config.n_head, config.n_kv_head, config.d_head
        self.q_proj = Linear(shapes, f"{path}.q_proj")
        self.k_proj = Linear(shapes, f"{path}.k_proj")
        self.v_proj = Linear(shapes, f"{path}.v_proj")
        self.normed = not config.qk_norm.is_none
        if self.normed:
            self.q_norm = norms.make(shapes, f"{path}.q_norm", config.qk_norm)
            self.k_norm = norms.make(shapes, f"{path}.k_norm", config.qk_norm)
        self.mix = attentions.make(config, path)
        self.o_proj = Linear(shapes, f"{path}.o_proj") if f"{path}.o_proj.weight" in shapes else None

    def forward(self, x: Tensor, inputs: AttentionInputs, cache: LayerCache | None = None) -> Tensor:
        t = self.t
        q, k, v = together(x, self.q_proj, self.k_proj, self.v_proj)
        q = t("q", self._heads(q, self.n_head))
        k, v = t("k", self._heads(k, self.n_kv_head)), t("v", self._heads(v, self.n_kv_head))
        if self.normed:
            q, k = t("q_normed", self.q_norm(q)), t("k_normed", self.k_norm(k))
        if inputs.rotation:
            q, k = t("q_rot", rotate(q, inputs.rotation)), t("k_rot", rotate(k, inputs.rotation))
        z = t("z", self.mix(q, k, v, inputs, cache))
        joined = z.transpose(1, 2).flatten(2)
        return joined if self.o_proj is None else self.o_proj(joined)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """[B T (heads D)] → [B heads T D]."""
        batch, count, _ = x.shape
        return x.view(batch, count, heads, self.d_head).transpose(1, 2)
