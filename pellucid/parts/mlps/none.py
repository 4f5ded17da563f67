"""No feed-forward: the block is attention alone."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class NoMlp(Mlp):
    form: ClassVar[str] = "none"
    values: ClassVar[tuple[str, ...]] = ()

    def width(self, d_model: int) -> int:
        return 0

    def parameters(self, d_model: int, d_ff: int) -> dict[str, tuple[int, ...]]:
        return {}
