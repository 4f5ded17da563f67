"""AdamW: Adam, and every weight that multiplies shrinks by itself, whatever its gradients were."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import Decaying


@dataclass(frozen=True)
class AdamW(Decaying):
    """The settings are those of GPT-3 (Brown et al. 2020, arXiv:2005.14165, appendix B)."""

    formula: ClassVar[str] = "θ ← θ − η (m̂ / (√v̂ + ε) + λ θ)"
    source: ClassVar[str] = "Loshchilov and Hutter 2017, arXiv:1711.05101"

    lr: float = 6e-4
    beta2: float = 0.95
    weight_decay: float = 0.1
