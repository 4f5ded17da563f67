"""One block: attention between positions, then the feed-forward at each."""

from torch import Tensor, nn

from pellucid.config import ModelConfig, Shapes
from pellucid.model import mlps, norms, residuals
from pellucid.model.attention import Attention, AttentionInputs
from pellucid.model.cache import LayerCache
from pellucid.model.dropout import Dropout
from pellucid.model.taps import Scope


class Block(nn.Module):
    """X_mid = X + Attention(norm X);  X_post = X_mid + FeedForward(norm X_mid); the norms where the config
    places them."""

    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = Scope(path)
        self.join = residuals.make(config.residual)
        self.places = config.placement.places
        self.attn = Attention(shapes, f"{path}.attn", config)
        self.mlp = mlps.make(shapes, f"{path}.mlp", config)
        for sub_layer in ("attn", *["mlp"] * (self.mlp is not None)):
            for place in self.places:
                name = f"{sub_layer}_{place}"
                self.add_module(name, norms.make(shapes, f"{path}.{name}", config.norm))
            rate = config.dropout.rates.get("output", 0.0)
            self.add_module(f"{sub_layer}_drop", Dropout(f"{path}.{sub_layer}_out", rate))

    def forward(self, x: Tensor, inputs: AttentionInputs, cache: LayerCache | None = None) -> Tensor:
        t = self.t
        x = t("resid_pre", x)
        attended = t("attn_out", self.attn(self._placed("attn", "norm", x), inputs, cache))
        x = self._joined("attn", "resid_mid", x, attended)
        if self.mlp is None:
            return t("resid_post", x)
        written = t("mlp_out", self.mlp(self._placed("mlp", "norm", x)))
        return self._joined("mlp", "resid_post", x, written)

    def _joined(self, sub_layer: str, stream: str, x: Tensor, written: Tensor) -> Tensor:
        """The stream after a sub-layer, from the stream before and what the sub-layer wrote."""
        dropped = self.get_submodule(f"{sub_layer}_drop")(written)
        x = self.join(x, self._placed(sub_layer, "out_norm", dropped))
        if "post_norm" in self.places:
            x = self._placed(sub_layer, "post_norm", self.t(f"{sub_layer}_sum", x))
        return self.t(stream, x)

    def _placed(self, sub_layer: str, place: str, x: Tensor) -> Tensor:
        """Normed where the config has a norm at this place, and else as it is."""
        if place not in self.places:
            return x
        y: Tensor = self.get_submodule(f"{sub_layer}_{place}")(x)
        return y
