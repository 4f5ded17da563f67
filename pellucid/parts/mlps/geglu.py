"""Gated feed-forward with GELU in its exact form: (GELU(x W_G) ⊙ x W_1) W_2."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import GatedMlp


@dataclass(frozen=True)
class Geglu(GatedMlp):
    activation: ClassVar[str] = "gelu"
    formula: ClassVar[str] = "(GELU(X W_G) ⊙ X W_1) W_2, GELU(x) = x Φ(x)"
    source: ClassVar[str] = "Shazeer 2020, arXiv:2002.05202"
