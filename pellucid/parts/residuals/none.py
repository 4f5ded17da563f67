"""No residual: the sub-layer's output replaces the stream."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.residuals import Residual


@dataclass(frozen=True)
class NoResidual(Residual):
    values: ClassVar[tuple[str, ...]] = ()
