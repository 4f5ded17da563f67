"""Where a token stands, and how the model gets to know.

Position can enter as rows added to the embedding, fixed or learned, and as angles that turn queries and keys.
A kind supplies the tables of those it uses and inherits "nothing" for the rest; each engine knows the places,
not the kinds.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.parts import Part

Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Turn:
    """Angles [T D/2], and which channels are a pair: i and i + D/2 ("halves") or 2i and 2i + 1 ("pairs")."""

    angles: Table
    layout: str


@dataclass(frozen=True)
class Positions(Part):
    family: ClassVar[str] = "positions"

    def parameters(self, context_length: int, d_model: int) -> dict[str, tuple[int, ...]]:
        """Shapes of learned tables, by parameter name."""
        return {}

    def row_ids(self, positions: Table) -> Table | None:
        """Which rows [T] of the learned table `positions.weight` are added to the embedding."""
        return None

    def rows(self, positions: Table, d_model: int) -> Table | None:
        """Fixed rows [T C] added to the embedding."""
        return None

    def turn(self, positions: Table, d_head: int) -> Turn | None:
        """How the pairs of channels of q and k are turned."""
        return None

    def check(self, d_model: int, d_head: int) -> str | None:
        """Why these sizes cannot be, and what would work; None where they can."""
        return None
