"""Adam: the running mean of the gradient over the root of that of its square; no decay."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import Adaptive


@dataclass(frozen=True)
class Adam(Adaptive):
    formula: ClassVar[str] = "θ ← θ − η m̂ / (√v̂ + ε), m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)"
    source: ClassVar[str] = "Kingma and Ba 2014, arXiv:1412.6980"
