"""Gated feed-forward with GELU in its tanh approximation (Gemma): (GELU(x W_G) ⊙ x W_1) W_2."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import GatedMlp


@dataclass(frozen=True)
class GegluTanh(GatedMlp):
    activation: ClassVar[str] = "gelu_tanh"
    formula: ClassVar[str] = "(GELU(X W_G) ⊙ X W_1) W_2, GELU(x) ≈ ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202; Gemma team 2024, arXiv:2403.08295"
