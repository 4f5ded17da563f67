"""A transformer block: attention between positions, then an MLP at each position."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pellucid.base import registry
from pellucid.config import ModelConfig, Shapes
from pellucid.engine import mlps, norms
from pellucid.engine.attention import Attention
from pellucid.engine.attentions import AttentionInputs
from pellucid.engine.dropout import Dropout
from pellucid.engine.layer_cache import LayerCache
from pellucid.engine.taps import TapScope
from pellucid.parts.residuals import NoResidual, PlainResidual, ResidualConfig, ScaledResidual

AddResidual = Callable[[Tensor, Tensor], Tensor]


class Block(nn.Module):
    """X_mid = X + Attention(norm X);  X_post = X_mid + MLP(norm X_mid); the norms where the config's
    placement has them."""

    def __init__(self, shapes: Shapes, path: str, config: ModelConfig) -> None:
        super().__init__()
        self.t = TapScope(path)
        self.add_residual = make_residual(config.residual)
        self.places = config.placement.places
        self.attn = Attention(shapes, f"{path}.attn", config)
        self.mlp = mlps.make(shapes, f"{path}.mlp", config)
        for sub_layer in ("attn", *["mlp"] * (self.mlp is not None)):
            for place in self.places:
                name = f"{sub_layer}_{place}"
                self.add_module(name, norms.make(shapes, f"{path}.{name}", config.norm))
            rate = config.dropout.rates.get("output", 0.0)
            self.add_module(f"{sub_layer}_drop", Dropout(f"{path}.{sub_layer}_out", rate))

    def forward(
        self, x: Tensor, inputs: AttentionInputs, cache: LayerCache | Sequence[LayerCache] | None = None
    ) -> Tensor:
        t = self.t
        x = t("resid_pre", x)
        output = t("attn_out", self.attn(self._apply_norm("attn", "norm", x), inputs, cache))
        x = self._update_stream("attn", "resid_mid", x, output)
        if self.mlp is None:
            return t("resid_post", x)
        output = t("mlp_out", self.mlp(self._apply_norm("mlp", "norm", x)))
        return self._update_stream("mlp", "resid_post", x, output)

    def _update_stream(self, sub_layer: str, name: str, x: Tensor, output: Tensor) -> Tensor:
        """Returns the residual stream after a sub-layer, from the stream x before it and its output."""
        output = self.get_submodule(f"{sub_layer}_drop")(output)
        x = self.add_residual(x, self._apply_norm(sub_layer, "out_norm", output))
        if "post_norm" in self.places:
            x = self._apply_norm(sub_layer, "post_norm", self.t(f"{sub_layer}_sum", x))
        return self.t(name, x)

    def _apply_norm(self, sub_layer: str, place: str, x: Tensor) -> Tensor:
        """Returns x normalized, or x itself if the config has no norm at this place."""
        if place not in self.places:
            return x
        y: Tensor = self.get_submodule(f"{sub_layer}_{place}")(x)
        return y


def make_residual(residual: ResidualConfig) -> AddResidual:
    """Returns the function that adds a sub-layer's output to the residual stream x."""
    return functools.partial(registry.function_of(__name__, residual.kind, "residual"), residual=residual)


@registry.kind("none")
def replace_stream(x: Tensor, output: Tensor, residual: NoResidual) -> Tensor:
    """f(x): without a residual connection the sub-layer's output is the stream."""
    return output


@registry.kind("plain")
def add_output(x: Tensor, output: Tensor, residual: PlainResidual) -> Tensor:
    """x + f(x)."""
    return x + output


@registry.kind("scaled")
def add_scaled_output(x: Tensor, output: Tensor, residual: ScaledResidual) -> Tensor:
    """x + α f(x)."""
    return torch.add(x, output, alpha=residual.alpha)
