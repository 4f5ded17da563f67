"""LayerNorm: subtract the mean, divide by √(variance + eps); population variance.

Ba et al. 2016, arXiv:1607.06450.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.norms import Norm


@dataclass(frozen=True)
class LayerNorm(Norm):
    values: ClassVar[tuple[str, ...]] = ("mean", "centered", "rstd", "normed", "out")

    eps: float = 1e-5
