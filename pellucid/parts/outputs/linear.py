"""The output projection W_O: each head writes through its own rows of it."""

from dataclasses import dataclass

from pellucid.parts.outputs import Output


@dataclass(frozen=True)
class LinearOutput(Output):
    def parameters(self, d_model: int, d_heads: int) -> dict[str, tuple[int, ...]]:
        return {"o_proj.weight": (d_model, d_heads), "o_proj.bias": (d_model,)}
