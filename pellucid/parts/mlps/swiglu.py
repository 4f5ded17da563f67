"""Gated feed-forward with SiLU: (SiLU(x W_G) ⊙ x W_1) W_2.

Shazeer 2020, arXiv:2002.05202.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import GatedMlp


@dataclass(frozen=True)
class Swiglu(GatedMlp):
    activation: ClassVar[str] = "silu"
