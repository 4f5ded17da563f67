"""Learned positions: one trained row of channels per position, added to the embedding (GPT-2)."""

from dataclasses import dataclass

from pellucid.parts.positions import Positions, Table


@dataclass(frozen=True)
class Learned(Positions):
    def parameters(self, context_length: int, d_model: int) -> dict[str, tuple[int, ...]]:
        return {"positions.weight": (context_length, d_model)}

    def row_ids(self, positions: Table) -> Table:
        return positions
