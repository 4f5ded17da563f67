"""No position encoding (NoPE): order enters only through the causal mask."""

from dataclasses import dataclass

from pellucid.parts.positions import PositionsConfig


@dataclass(frozen=True)
class NoPositions(PositionsConfig):
    pass
