"""No mask: every query attends to every key."""

import math
from dataclasses import dataclass

from pellucid.parts.masks import MaskConfig


@dataclass(frozen=True)
class NoMask(MaskConfig):
    @property
    def bidirectional_prefix(self) -> float:
        return math.inf
