"""Adam with an L2 penalty: λθ is added to the gradient, so both moments see it."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import Decaying


@dataclass(frozen=True)
class AdamL2(Decaying):
    formula: ClassVar[str] = "g ← g + λ θ before both moments; θ ← θ − η m̂ / (√v̂ + ε)"
    source: ClassVar[str] = "Loshchilov and Hutter 2017, arXiv:1711.05101, Algorithm 2"
