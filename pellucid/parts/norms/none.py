"""No norm: the sub-layer reads the stream as it is."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.norms import Norm


@dataclass(frozen=True)
class NoNorm(Norm):
    values: ClassVar[tuple[str, ...]] = ()

    def parameters(self, width: int) -> dict[str, tuple[int, ...]]:
        return {}
