"""Feed-forward with GELU in its tanh approximation (GPT-2)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class GeluTanh(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "gelu_tanh"
