"""Norms before the sub-layers: the stream itself is never normed, and gradients pass it untouched."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.placements import Placement


@dataclass(frozen=True)
class Pre(Placement):
    places: ClassVar[tuple[str, ...]] = ("norm",)
    formula: ClassVar[str] = "X + f(norm X)"
    source: ClassVar[str] = "Xiong et al. 2020, arXiv:2002.04745"
