"""Feed-forward with GELU in its tanh approximation (GPT-2)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class GeluTanh(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "gelu_tanh"
    formula: ClassVar[str] = "GELU(X W_1) W_2, GELU(x) ≈ ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))"
    source: ClassVar[str] = "Hendrycks and Gimpel 2016, arXiv:1606.08415"
