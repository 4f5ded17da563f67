"""The output projection W_O: each head writes through its own rows of it."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.outputs import Output


@dataclass(frozen=True)
class LinearOutput(Output):
    formula: ClassVar[str] = "O = concat(Z_1, …, Z_H) W_O"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2"

    def parameters(self, d_model: int, d_heads: int) -> dict[str, tuple[int, ...]]:
        return {"o_proj.weight": (d_model, d_heads), "o_proj.bias": (d_model,)}
