"""Feed-forward with ReLU, max(0, x)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class Relu(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "relu"
    formula: ClassVar[str] = "max(0, X W_1) W_2"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.3"
