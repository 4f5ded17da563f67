"""Residual connections: how a sub-layer's output is added to the residual stream."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike, Part


@dataclass(frozen=True)
class ResidualConfig(Part):
    family: ClassVar[str] = "residuals"
    values: ClassVar[tuple[str, ...]] = ("resid_mid", "resid_post")
    """The named values that it computes, in order."""


@dataclass(frozen=True)
class NoResidual(ResidualConfig):
    """No residual connection: the sub-layer's output replaces the stream."""

    kind: ClassVar[str] = "none"
    values: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class PlainResidual(ResidualConfig):
    """The residual connection: X + f(X)."""

    kind: ClassVar[str] = "plain"
    formula: ClassVar[str] = "X + f(X)"
    source: ClassVar[str] = "He et al. 2015, arXiv:1512.03385"


@dataclass(frozen=True)
class ScaledResidual(ResidualConfig):
    """The scaled residual: a sub-layer's output times α, so that the stream of a deep stack stays small."""

    kind: ClassVar[str] = "scaled"
    formula: ClassVar[str] = "X + α f(X)"
    source: ClassVar[str] = "Szegedy et al. 2016, arXiv:1602.07261, section 3.3"

    alpha: float = 0.5

    def check(self, config: ConfigLike) -> str | None:
        if self.alpha > 1e6:
            return f"a residual scaled by {self.alpha:g} is lost in rounding: use 0.5."
        return None
