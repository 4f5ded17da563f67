"""Precision of a computed value: the share of its numbers that are correctly rounded, and whether all are off
together.

An error budget allows for a rounding in every step, so a sum that was accumulated in bfloat16 hides inside
it. But an engine that states "float32 inside, one rounding at the end" gives, in nearly every cell, the
16-bit number that is nearest to the exact result. Measured on healthy models, 0.99 of the cells of a value
are; where a norm, a rotation, a softmax or a sum is carried out in 16 bits, 0.3 to 0.8.

What the stated arithmetic predicts is computed rather than tabulated: the same steps in float32, from the
same recorded inputs, rounded once. A fused attention kernel also holds the pattern in 16 bits.

A product that is 5 % too large stays within the error budget of bfloat16 in every cell, but it is too large
in all of them, and rounding to the nearest has no such preference. So the bias is the slope of the error on
the value, over all cells. Errors and values are taken in units of Σ|terms|, so that no large number outweighs
the others, and rows are independent samples: within a row, errors have common causes.
"""

from typing import NamedTuple

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.verification.rounding import Bounded, round_to

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


STANDARD_ERRORS = 9
"""How many standard errors chance explains. Of 3,400 healthy values in 16 bits, all but one are below 8."""
SHARE_OF_BUDGET = 1 / 8
"""The part of the error budget that a slope may be, apart from chance: a constant that is rounded once, such
as 1/√D, gives a slope of up to one unit. Healthy values use 0.01 of this, 5 % too much in a score 9 times."""
MIN_ROWS = 4
"""The fewest rows of about the same weight from which a scatter can be estimated."""
TYPES = ("bfloat16", "float16")
"""In float32 the error budget itself is sharp, and long sums of positive terms are biased."""


class Slope(NamedTuple):
    """The regression Σ e·x / Σ x² of one array on another, its standard error over rows, and how many rows of
    equal weight would have the same scatter."""

    value: float
    error: float
    rows: float


def regress(error: Array, direction: Array) -> Slope:
    """Returns the slope of `error` on `direction`, both [… n] with rows along the last axis."""
    rows = (-1, direction.shape[-1] if direction.ndim else 1)
    along = (error * direction).reshape(rows).sum(axis=-1)
    weight = (direction * direction).reshape(rows).sum(axis=-1)
    total = float(weight.sum())
    if not total:
        return Slope(0.0, np.inf, 0.0)
    slope = float(along.sum()) / total
    scatter = float(np.sqrt(((along - slope * weight) ** 2).sum())) / total
    return Slope(slope, scatter, total**2 / float((weight**2).sum()))


def find_bias(got: Array, bound: Bounded, dtype: Dtype) -> str:
    """Returns by how much the values are systematically off, "" where chance and rounding explain it."""
    if dtype.name not in TYPES or not got.ndim:
        return ""
    with np.errstate(all="ignore"):
        terms = np.maximum(bound.terms, dtype.smallest_normal)
        is_judged = np.isfinite(got) & np.isfinite(bound.value) & np.isfinite(terms)
        is_judged &= np.abs(bound.value) >= dtype.smallest_normal  # smaller ones round to 0, all alike
        error = np.where(is_judged, (got - bound.value) / (dtype.roundoff * terms), 0.0)
        size = np.where(is_judged, bound.value / terms, 0.0)
    slope = regress(error, size)
    limit = STANDARD_ERRORS * slope.error + SHARE_OF_BUDGET * bound.allowed
    if slope.rows < MIN_ROWS or abs(slope.value) <= limit:
        return ""
    way = "large" if slope.value > 0 else "small"
    return f"too {way} by {abs(slope.value) * dtype.roundoff:.2g} of itself on average over all cells"
