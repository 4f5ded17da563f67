"""The gated feed-forward: (A(x W_G) ⊙ x W_1) W_2."""

from torch import Tensor, nn

from pellucid.config import ModelConfig, Shapes
from pellucid.model import activations
from pellucid.model.dropout import Dropout
from pellucid.model.linear import Linear, together
from pellucid.model.taps import Scope


class Mlp(nn.Module):
    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = Scope(path)
        self.curve = activations.make(config.mlp.activation)
        self.gate_proj = Linear(shapes, f"{path}.gate_proj")
        self.up_proj = Linear(shapes, f"{path}.up_proj")
        self.drop = Dropout(f"{path}.hidden", config.dropout.rates.get("hidden", 0.0))
        self.down_proj = Linear(shapes, f"{path}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        t = self.t
        gate, up = together(x, self.gate_proj, self.up_proj)
        gate, up = t("gate", gate), t("up", up)
        hidden = t("hidden", t("act", self.curve(gate)) * up)
        y: Tensor = self.down_proj(self.drop(hidden))
        return y
