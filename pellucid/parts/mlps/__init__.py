"""The feed-forward: what each position does by itself.

`form` is how the matrices are joined (an engine's file of that name), `activation` the curve
(an operation of that name). Plain: A(x W_1) W_2. Gated: (A(x W_G) ⊙ x W_1) W_2.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Mlp(Part):
    family: ClassVar[str] = "mlps"
    form: ClassVar[str]
    activation: ClassVar[str]
    values: ClassVar[tuple[str, ...]] = ("up", "act")
    """The named values it makes, in order; none where there is no feed-forward."""

    def width(self, d_model: int) -> int:
        """The hidden width F where the config names none."""
        return 4 * d_model

    def parameters(self, d_model: int, d_ff: int) -> dict[str, tuple[int, ...]]:
        """Shapes by name, (out, in); a `bias` exists where the config asks for one."""
        return _linear("up_proj", d_ff, d_model) | _linear("down_proj", d_model, d_ff)


@dataclass(frozen=True)
class GatedMlp(Mlp):
    form: ClassVar[str] = "gated"
    values: ClassVar[tuple[str, ...]] = ("gate", "up", "act", "hidden")

    def width(self, d_model: int) -> int:
        """8C/3: three matrices then weigh as much as two of 4C."""
        return 8 * d_model // 3

    def parameters(self, d_model: int, d_ff: int) -> dict[str, tuple[int, ...]]:
        return _linear("gate_proj", d_ff, d_model) | super().parameters(d_model, d_ff)


def _linear(name: str, out: int, in_: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, in_), f"{name}.bias": (out,)}
