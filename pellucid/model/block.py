"""One block: attention between positions, then the feed-forward at each."""

from torch import Tensor, nn

from pellucid.config import ModelConfig, Shapes
from pellucid.model import mlps, norms, residuals
from pellucid.model.attention import Attention, Where
from pellucid.model.cache import LayerCache
from pellucid.model.taps import Scope


class Block(nn.Module):
    """X_mid = X + Attention(norm X);  X_post = X_mid + FeedForward(norm X_mid)."""

    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = Scope(path)
        self.join = residuals.make(config.residual)
        self.attn_norm = norms.make(shapes, f"{path}.attn_norm", config.norm)
        self.attn = Attention(shapes, f"{path}.attn", config)
        self.mlp = mlps.make(shapes, f"{path}.mlp", config.mlp)
        if self.mlp is not None:
            self.mlp_norm = norms.make(shapes, f"{path}.mlp_norm", config.norm)

    def forward(self, x: Tensor, where: Where, cache: LayerCache | None = None) -> Tensor:
        t = self.t
        x = t("resid_pre", x)
        attended = t("attn_out", self.attn(self.attn_norm(x), where, cache))
        x = t("resid_mid", self.join(x, attended))
        if self.mlp is None:
            return t("resid_post", x)
        written = t("mlp_out", self.mlp(self.mlp_norm(x)))
        return t("resid_post", self.join(x, written))
