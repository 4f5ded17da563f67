"""Feed-forward with SiLU, x σ(x), also called swish."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class Silu(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "silu"
    formula: ClassVar[str] = "SiLU(X W_1) W_2, SiLU(x) = x σ(x)"
    source: ClassVar[str] = (
        "Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017, arXiv:1710.05941"
    )
