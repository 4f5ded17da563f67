"""Feed-forward with the square of ReLU, max(0, x)²."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class ReluSquared(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "relu_squared"
    formula: ClassVar[str] = "max(0, X W_1)² W_2"
    source: ClassVar[str] = "So et al. 2021, arXiv:2109.08668"
