"""Norms after the sums: the stream is normed after every sub-layer, and so needs no final norm."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.placements import Placement


@dataclass(frozen=True)
class Post(Placement):
    places: ClassVar[tuple[str, ...]] = ("post_norm",)
    final: ClassVar[bool] = False
    formula: ClassVar[str] = "norm(X + f(X))"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.1"
