"""The MLP of a block, in the forms of `parts/mlps.py`."""

from typing import ClassVar

from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import ModelConfig, Shapes
from pellucid.engine import activations
from pellucid.engine.dropout import Dropout
from pellucid.engine.linear import Linear, project
from pellucid.engine.taps import TapScope


def make(shapes: Shapes, path: str, config: ModelConfig) -> nn.Module | None:
    """Returns the MLP whose parameters are those under `path`, None where the block has none."""
    if config.mlp.is_none:
        return None
    return registry.class_of(__name__, config.mlp.form, "MLP form", nn.Module)(shapes, path, config)


class PlainMlp(nn.Module):
    """A(x W_1) W_2, with the activation A."""

    kind: ClassVar[str] = "plain"

    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = TapScope(path)
        self.activation = activations.make(config.mlp.activation)
        self.up_proj = Linear(shapes, f"{path}.up_proj")
        self.drop = Dropout(f"{path}.hidden", config.dropout.rates.get("hidden", 0.0))
        self.down_proj = Linear(shapes, f"{path}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        t = self.t
        up = t("up", self.up_proj(x))
        hidden = t("hidden", t("act", self.activation(up)))
        y: Tensor = self.down_proj(self.drop(hidden))
        return y


class GatedMlp(nn.Module):
    """(A(x W_G) ⊙ x W_1) W_2, with the activation A."""

    kind: ClassVar[str] = "gated"

    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = TapScope(path)
        self.activation = activations.make(config.mlp.activation)
        self.gate_proj = Linear(shapes, f"{path}.gate_proj")
        self.up_proj = Linear(shapes, f"{path}.up_proj")
        self.drop = Dropout(f"{path}.hidden", config.dropout.rates.get("hidden", 0.0))
        self.down_proj = Linear(shapes, f"{path}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        t = self.t
        gate, up = project(x, self.gate_proj, self.up_proj)
        gate, up = t("gate", gate), t("up", up)
        hidden = t("hidden", t("act", self.activation(gate)) * up)
        y: Tensor = self.down_proj(self.drop(hidden))
        return y
