"""How a sub-layer's output meets the stream: X' = keep · X + f(X)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Residual(Part):
    family: ClassVar[str] = "residuals"
    keep: ClassVar[float]
