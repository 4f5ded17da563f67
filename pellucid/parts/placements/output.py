"""Norms on what the sub-layers write: the stream is read as it is."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.placements import Placement


@dataclass(frozen=True)
class OnOutput(Placement):
    places: ClassVar[tuple[str, ...]] = ("out_norm",)
    formula: ClassVar[str] = "X + norm(f(X))"
    source: ClassVar[str] = "OLMo team 2024, arXiv:2501.00656"
