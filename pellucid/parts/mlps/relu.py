"""Feed-forward with ReLU, max(0, x)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class Relu(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "relu"
