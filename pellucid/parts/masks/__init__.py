"""Which positions a position may look at: a pure function of the two positions."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.parts import Part

Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Mask(Part):
    family: ClassVar[str] = "masks"

    def allowed(self, queries: Table, keys: Table) -> Table | None:
        """True [T S] where the query's position may look at the key's; None where all may."""
        return None
