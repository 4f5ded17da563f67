"""Which positions a position may look at: a pure function of the two positions.

Written with operators alone, so that each engine gives it arrays of its own kind.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.parts import Part


@dataclass(frozen=True)
class Mask(Part):
    family: ClassVar[str] = "masks"
    causal: ClassVar[bool] = False
    """Whether it is the plain causal mask, which kernels know without a table."""

    def allowed(self, queries: Any, keys: Any) -> Any:
        """True [… T S] where the query's position [… T] may look at the key's [S]; None where all may."""
        return None

    @property
    def looks_ahead(self) -> bool:
        """Whether a position sees a later one."""
        table = self.allowed(np.arange(1), np.arange(2))
        return table is None or bool(table[0, 1])
