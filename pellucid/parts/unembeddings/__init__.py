"""How a position's final vector becomes one score per token."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Unembedding(Part):
    """`weight` names the [V C] matrix whose rows the final vector is compared with."""

    family: ClassVar[str] = "unembeddings"
    weight: ClassVar[str]
