"""LayerNorm: subtract the mean, divide by √(variance + eps); population variance."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.norms import Norm


@dataclass(frozen=True)
class LayerNorm(Norm):
    values: ClassVar[tuple[str, ...]] = ("mean", "centered", "rstd", "normed", "out")
    formula: ClassVar[str] = "(X − μ) / √(σ² + eps) ⊙ γ + β"
    source: ClassVar[str] = "Ba et al. 2016, arXiv:1607.06450"

    eps: float = 1e-5
