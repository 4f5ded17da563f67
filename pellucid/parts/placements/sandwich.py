"""Norms on both sides of the sub-layers."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.placements import Placement


@dataclass(frozen=True)
class Sandwich(Placement):
    places: ClassVar[tuple[str, ...]] = ("norm", "out_norm")
    formula: ClassVar[str] = "X + norm(f(norm X))"
    source: ClassVar[str] = "Ding et al. 2021, arXiv:2105.13290"
