"""Learned positions: one trained row of channels per position, added to the embedding (GPT-2)."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike, Shapes
from pellucid.parts.positions import PositionsConfig, Table


@dataclass(frozen=True)
class Learned(PositionsConfig):
    formula: ClassVar[str] = "x_t = e_t + W_pos[t]"
    source: ClassVar[str] = "Gehring et al. 2017, arXiv:1705.03122, section 3.1"

    def parameters(self, config: ConfigLike) -> Shapes:
        return {"positions.weight": (config.context_length, config.d_model)}

    def row_ids(self, positions: Table) -> Table:
        return positions
