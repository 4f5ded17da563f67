"""No mask: every position sees every other."""

import math
from dataclasses import dataclass

from pellucid.parts.masks import Mask


@dataclass(frozen=True)
class NoMask(Mask):
    @property
    def together(self) -> float:
        return math.inf
