"""How the heads' mixtures reach the stream."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Output(Part):
    family: ClassVar[str] = "outputs"

    def parameters(self, d_model: int, d_heads: int) -> dict[str, tuple[int, ...]]:
        return {}
