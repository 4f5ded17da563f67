"""How scores and logits are kept from growing without bound."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Cap(Part):
    family: ClassVar[str] = "caps"
