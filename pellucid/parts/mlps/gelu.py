"""Feed-forward with GELU, x Φ(x), in its exact form."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class Gelu(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "gelu"
    formula: ClassVar[str] = "GELU(X W_1) W_2, GELU(x) = x Φ(x)"
    source: ClassVar[str] = "Hendrycks and Gimpel 2016, arXiv:1606.08415"
