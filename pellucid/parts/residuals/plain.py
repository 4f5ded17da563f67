"""The residual connection: X + f(X)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.residuals import Residual


@dataclass(frozen=True)
class PlainResidual(Residual):
    values: ClassVar[tuple[str, ...]] = ("resid_mid", "resid_post")
    formula: ClassVar[str] = "X + f(X)"
    source: ClassVar[str] = "He et al. 2015, arXiv:1512.03385"
