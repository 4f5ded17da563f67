"""The scaled residual: what a sub-layer writes counts less, so that a deep stack stays small."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Model
from pellucid.parts.residuals import Residual


@dataclass(frozen=True)
class ScaledResidual(Residual):
    values: ClassVar[tuple[str, ...]] = ("resid_mid", "resid_post")
    formula: ClassVar[str] = "X + α f(X)"
    source: ClassVar[str] = "Szegedy et al. 2016, arXiv:1602.07261, section 3.3"

    alpha: float = 0.5

    def check(self, model: Model) -> str | None:
        return (
            None
            if self.alpha <= 1e6
            else f"a residual scaled by {self.alpha:g} is lost in rounding: use 0.5."
        )
