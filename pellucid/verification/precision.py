"""Precision of a computed value: the share of its numbers that are correctly rounded.

An error budget allows for a rounding in every step, so a sum that was accumulated in bfloat16 hides inside
it. But an engine that states "float32 inside, one rounding at the end" gives, in nearly every cell, the
16-bit number that is nearest to the exact result. Measured on healthy models, 0.99 of the cells of a value
are; where a norm, a rotation, a softmax or a sum is carried out in 16 bits, 0.3 to 0.8.

What the stated arithmetic predicts is computed rather than tabulated: the same steps in float32, from the
same recorded inputs, rounded once. A fused attention kernel also holds the pattern in 16 bits.
"""

from typing import NamedTuple

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.verification.rounding import round_to

NARROW = ("bfloat16", "float16")
STATED_ALLOWED = 8
"""How many times the error of the stated arithmetic, in its worst cell of a row, a cell may be off; healthy
values are off by up to 1 on a CPU, and by up to 5 in the attention kernels of a GPU."""
MARGIN = 0.1
"""How far below the predicted share a value may be, apart from chance."""
MIN_CELLS = 64


class RoundedShare(NamedTuple):
    """How many of the cells of a value are correctly rounded, and how many the stated arithmetic gives."""

    found: float
    predicted: float
    cells: int

    @property
    def is_low(self) -> bool:
        """Returns whether fewer are correct than chance explains: six standard deviations of a share of
        `cells`."""
        chance = 6 * np.sqrt(max(self.predicted * (1 - self.predicted), 0.01) / self.cells)
        return bool(self.found < self.predicted - MARGIN - chance)

    def __str__(self) -> str:
        return (
            f"{self.found:.0%} of {self.cells:,} numbers are the nearest to what their inputs give; the "
            f"stated arithmetic gives {self.predicted:.0%}"
        )


def measure_share(got: Array, exact: Array, stated: Array, dtype: Dtype) -> RoundedShare | None:
    """Returns the shares of correctly rounded cells, as found and as the stated arithmetic's result has them;
    None where too few cells tell: infinite ones and those below the smallest normal number do not."""
    is_judged = np.isfinite(exact) & np.isfinite(got) & (np.abs(exact) > dtype.smallest_normal)
    if (cells := int(is_judged.sum())) < MIN_CELLS:
        return None
    nearest = round_to(exact[is_judged], dtype)
    predicted = float((round_to(stated[is_judged], dtype) == nearest).mean())
    return RoundedShare(float((got[is_judged] == nearest).mean()), predicted, cells)
