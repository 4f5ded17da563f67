"""Gated feed-forward with SiLU: (SiLU(x W_G) ⊙ x W_1) W_2."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import GatedMlp


@dataclass(frozen=True)
class Swiglu(GatedMlp):
    activation: ClassVar[str] = "silu"
    formula: ClassVar[str] = "(SiLU(X W_G) ⊙ X W_1) W_2"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202"
