"""The MLP (feed-forward network) of a block, applied to each position separately.

`form` names how its matrices are combined, which each engine implements once; `activation` names the
activation function, an operation of that name. Plain: A(x W_1) W_2. Gated: (A(x W_G) ⊙ x W_1) W_2.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part, Shapes


@dataclass(frozen=True)
class MlpConfig(Part):
    family: ClassVar[str] = "mlps"
    form: ClassVar[str] = "plain"
    activation: ClassVar[str]
    values: ClassVar[tuple[str, ...]] = ("up", "act")
    """The named values that it computes, in order; none where there is no MLP."""

    def width(self, d_model: int) -> int:
        """Returns the hidden width F for a config that names none."""
        return 4 * d_model

    def parameters(self, d_model: int, d_ff: int) -> Shapes:
        """Returns shapes by name, (out, in); a `bias` exists where the config asks for one."""
        return _linear("up_proj", d_ff, d_model) | _linear("down_proj", d_model, d_ff)


@dataclass(frozen=True)
class GatedMlpConfig(MlpConfig):
    form: ClassVar[str] = "gated"
    values: ClassVar[tuple[str, ...]] = ("gate", "up", "act", "hidden")

    def width(self, d_model: int) -> int:
        """Returns 8C/3: three matrices then have as many parameters as two of 4C."""
        return 8 * d_model // 3

    def parameters(self, d_model: int, d_ff: int) -> Shapes:
        return _linear("gate_proj", d_ff, d_model) | super().parameters(d_model, d_ff)


def _linear(name: str, out: int, in_: int) -> Shapes:
    return {f"{name}.weight": (out, in_), f"{name}.bias": (out,)}


@dataclass(frozen=True)
class NoMlp(MlpConfig):
    """No MLP: the block is attention alone."""

    kind: ClassVar[str] = "none"
    form: ClassVar[str] = "none"
    values: ClassVar[tuple[str, ...]] = ()

    def width(self, d_model: int) -> int:
        return 0

    def parameters(self, d_model: int, d_ff: int) -> Shapes:
        return {}


@dataclass(frozen=True)
class Relu(MlpConfig):
    """MLP with ReLU, max(0, x)."""

    kind: ClassVar[str] = "relu"
    activation: ClassVar[str] = "relu"
    formula: ClassVar[str] = "max(0, X W_1) W_2"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.3"


@dataclass(frozen=True)
class ReluSquared(MlpConfig):
    """MLP with squared ReLU, max(0, x)²."""

    kind: ClassVar[str] = "relu_squared"
    activation: ClassVar[str] = "relu_squared"
    formula: ClassVar[str] = "max(0, X W_1)² W_2"
    source: ClassVar[str] = "So et al. 2021, arXiv:2109.08668"


@dataclass(frozen=True)
class Gelu(MlpConfig):
    """MLP with GELU, x Φ(x), in its exact form."""

    kind: ClassVar[str] = "gelu"
    activation: ClassVar[str] = "gelu"
    formula: ClassVar[str] = "GELU(X W_1) W_2, GELU(x) = x Φ(x)"
    source: ClassVar[str] = "Hendrycks and Gimpel 2016, arXiv:1606.08415"


@dataclass(frozen=True)
class GeluTanh(MlpConfig):
    """MLP with GELU in its tanh approximation (GPT-2)."""

    kind: ClassVar[str] = "gelu_tanh"
    activation: ClassVar[str] = "gelu_tanh"
    formula: ClassVar[str] = "GELU(X W_1) W_2, GELU(x) ≈ ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))"
    source: ClassVar[str] = "Hendrycks and Gimpel 2016, arXiv:1606.08415"


@dataclass(frozen=True)
class Silu(MlpConfig):
    """MLP with SiLU, x σ(x), also called swish."""

    kind: ClassVar[str] = "silu"
    activation: ClassVar[str] = "silu"
    formula: ClassVar[str] = "SiLU(X W_1) W_2, SiLU(x) = x σ(x)"
    source: ClassVar[str] = (
        "Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017, arXiv:1710.05941"
    )


@dataclass(frozen=True)
class Geglu(GatedMlpConfig):
    """Gated MLP with GELU in its exact form: (GELU(x W_G) ⊙ x W_1) W_2."""

    kind: ClassVar[str] = "geglu"
    activation: ClassVar[str] = "gelu"
    formula: ClassVar[str] = "(GELU(X W_G) ⊙ X W_1) W_2, GELU(x) = x Φ(x)"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202"


@dataclass(frozen=True)
class GegluTanh(GatedMlpConfig):
    """Gated MLP with GELU in its tanh approximation (Gemma): (GELU(x W_G) ⊙ x W_1) W_2."""

    kind: ClassVar[str] = "geglu_tanh"
    activation: ClassVar[str] = "gelu_tanh"
    formula: ClassVar[str] = "(GELU(X W_G) ⊙ X W_1) W_2, GELU(x) ≈ ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202; Gemma team 2024, arXiv:2403.08295"


@dataclass(frozen=True)
class Swiglu(GatedMlpConfig):
    """Gated MLP with SiLU: (SiLU(x W_G) ⊙ x W_1) W_2."""

    kind: ClassVar[str] = "swiglu"
    activation: ClassVar[str] = "silu"
    formula: ClassVar[str] = "(SiLU(X W_G) ⊙ X W_1) W_2"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202"
