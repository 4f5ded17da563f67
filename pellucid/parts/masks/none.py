"""No mask: every position sees every other."""

from dataclasses import dataclass

from pellucid.parts.masks import Mask


@dataclass(frozen=True)
class NoMask(Mask):
    pass
