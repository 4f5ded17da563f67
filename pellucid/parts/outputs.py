"""The output projection of attention, from the concatenated heads to the residual stream."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part, Shapes


@dataclass(frozen=True)
class OutputConfig(Part):
    family: ClassVar[str] = "outputs"

    def parameters(self, d_model: int, d_heads: int) -> Shapes:
        """Returns shapes by name, (out, in); a `bias` exists where the config asks for one."""
        return {}


@dataclass(frozen=True)
class NoOutput(OutputConfig):
    """No output projection: the concatenated heads are the output."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class LinearOutput(OutputConfig):
    """The output projection W_O: each head writes through its own rows of it."""

    kind: ClassVar[str] = "linear"
    formula: ClassVar[str] = "O = concat(Z_1, …, Z_H) W_O"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2"

    def parameters(self, d_model: int, d_heads: int) -> Shapes:
        return {"o_proj.weight": (d_model, d_heads), "o_proj.bias": (d_model,)}
