"""RMSNorm: divide by √(mean square + eps); the mean stays."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.norms import Norm


@dataclass(frozen=True)
class RmsNorm(Norm):
    values: ClassVar[tuple[str, ...]] = ("rstd", "normed", "out")
    formula: ClassVar[str] = "X / √(mean(X²) + eps) ⊙ γ"
    source: ClassVar[str] = "Zhang and Sennrich 2019, arXiv:1910.07467"

    eps: float = 1e-5
