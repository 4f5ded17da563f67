"""How a sub-layer's output meets the stream."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Residual(Part):
    family: ClassVar[str] = "residuals"
    values: ClassVar[tuple[str, ...]]
    """The named values it makes, in order."""
