"""How a position's channels are brought to a common size before a sub-layer reads them."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class Norm(Part):
    family: ClassVar[str] = "norms"
    values: ClassVar[tuple[str, ...]]
    """The named values it makes, in order."""

    def parameters(self, width: int) -> dict[str, tuple[int, ...]]:
        """Shapes by name; a `bias` exists where the config asks for one."""
        return {"weight": (width,), "bias": (width,)}
