"""No positions: order is known only through the causal mask."""

from dataclasses import dataclass

from pellucid.parts.positions import PositionsConfig


@dataclass(frozen=True)
class NoPositions(PositionsConfig):
    pass
