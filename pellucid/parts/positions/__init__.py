"""Position encodings.

Position can enter as rows added to the embedding, fixed or learned; as angles that rotate queries and keys;
or as a bias of the scores, fixed or learned, that depends on the distance between query and key. A kind
supplies the tables that it uses and inherits None for the rest; the engines know these tables, not the kinds.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.parts import ConfigLike, Part, Shapes

Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class RotaryAngles:
    """Angles [T D/2], and the layout of channel pairs: i and i + D/2 ("halves") or 2i and 2i + 1
    ("pairs")."""

    angles: Table
    layout: str


@dataclass(frozen=True)
class PositionsConfig(Part):
    family: ClassVar[str] = "positions"

    def parameters(self, config: ConfigLike) -> Shapes:
        """Returns the shapes of learned tables, by parameter name: `positions.weight` [P C] for rows,
        `position_bias.weight` [N H] for biases."""
        return {}

    def row_ids(self, positions: Table) -> Table | None:
        """Returns the indices [T] of the rows of `positions.weight` that are added to the embedding."""
        return None

    def rows(self, positions: Table, d_model: int) -> Table | None:
        """Returns fixed rows [T C] that are added to the embedding."""
        return None

    def rotation(self, positions: Table, d_head: int) -> RotaryAngles | None:
        """Returns the angles by which the channel pairs of q and k are rotated."""
        return None

    def bias_factors(self, n_head: int) -> Table | None:
        """Returns the factors m_h [H] of a fixed bias −m_h |i − j|, for kinds whose bias is linear in the
        distance: it is computed where it is needed, without a table of all distances."""
        return None

    def bias(self, distances: Table, n_head: int) -> Table | None:
        """Returns a fixed bias [H …] for distances i − j […] from key j to query i; negative for later
        keys."""
        factors = self.bias_factors(n_head)
        return None if factors is None else np.multiply.outer(factors, -np.abs(distances))

    def bias_ids(self, distances: Table) -> Table | None:
        """Returns the indices […] of the rows of `position_bias.weight` that are the bias at these
        distances."""
        return None

    @property
    def attention_scale(self) -> float:
        """The factor of the scores in addition to 1/√D."""
        return 1.0

    @property
    def has_bias(self) -> bool:
        """Returns whether it adds a bias to the scores."""
        distance = np.zeros(1, dtype=int)
        return self.bias_ids(distance) is not None or self.bias(distance, 1) is not None
