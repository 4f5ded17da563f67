"""What the numbers of a recorded value say about a mistake: that it was made, that it was not, or nothing.

The effect of a mistake, the value with it less the value without it, is a direction. The slope of their error
on this direction is 1 if they made the mistake and 0 if not, and it is measured over all cells
(`bias.regress`), so that an effect far below the noise of one cell is seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.verification.bias import regress
from pellucid.verification.foreign_values import Recording
from pellucid.verification.judge_run import RERUN_ALLOWED
from pellucid.verification.rounding import Bounded, round_to
from pellucid.verification.span import compute_in_float32, round_each_step, run_span

HALF = 0.5
"""The slope on a mistake's effect is 1 with the mistake and 0 without it; a half divides them."""
STANDARD_ERRORS = 6
MIN_ROWS = 8
"""How many standard errors a slope must be from 0 to name a mistake, and from 1 to exclude it; more of them
where they were estimated from few rows: Student's distribution has long tails."""
LARGER = 1.5
"""How many times their error, in the median row, a mistake or a lower precision must give to be excluded:
with it, their error would be at least as large."""
LARGEST = 1e60
"""Where nothing was rounded there is no unit, and anything is this many."""


class Outcome(NamedTuple):
    """What recorded numbers say about a mistake: "named", "excluded", "open"; "" where it is not in them."""

    said: str
    explained: float = 0.0
    """The part of the squared error that the mistake explains."""
    has_size: bool = False
    """Whether it explains it with its own size, and not with a multiple of it."""


EXCLUDED, OPEN, ABSENT = Outcome("excluded"), Outcome("open"), Outcome("")


@dataclass(frozen=True)
class SpanEvidence:
    """One recorded value with its span: their error, and those of healthy runs from the same inputs."""

    name: str
    span: Tape
    theirs: Array
    dtype: Dtype
    right: Mapping[str, Array]
    """Every value of the span, and what it reads, in float64."""
    healthy: tuple[Array, ...]
    """The value in healthy arithmetic: each step rounded, and the last one alone."""

    @cached_property
    def exact(self) -> Array:
        return self.right[self.name]

    @cached_property
    def unit(self) -> Array:
        """The size of healthy errors of each cell: of its row, and of its own last place."""
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.abs(self.healthy[0] - self.exact), posinf=0.0)
            last_place = self.dtype.roundoff * np.maximum(np.abs(self.exact), self.dtype.smallest_normal)
            row = np.median(apart, axis=-1, keepdims=True)
        return np.asarray(np.nan_to_num(np.sqrt(row**2 + last_place**2), posinf=1.0))

    def in_units(self, made: Array) -> Array:
        """Returns made − exact in units of healthy errors, 0 where one of them is infinite."""
        is_judged = np.isfinite(self.exact) & np.isfinite(self.theirs)
        with np.errstate(all="ignore"):
            units = np.clip(np.nan_to_num((made - self.exact) / self.unit), -LARGEST, LARGEST)
        return np.where(is_judged, units, 0.0)

    def weigh(self, wrong: Array) -> Outcome:
        """Returns what their numbers say about the mistake that gives `wrong`."""
        if wrong.shape != self.exact.shape or not np.array_equal(np.isfinite(wrong), np.isfinite(self.exact)):
            return EXCLUDED  # a number for −∞, or the reverse, is a bug in itself
        if self.is_smaller_than(wrong):
            return EXCLUDED
        direction = self.in_units(wrong)
        balance = _balance_rows(direction)
        direction, error = direction * balance, self.in_units(self.theirs) * balance
        slope = regress(error, direction)
        if slope.rows >= MIN_ROWS:
            chance = [abs(regress(self.in_units(run) * balance, direction).value) for run in self.healthy]
            margin = STANDARD_ERRORS * (1 + 12 / slope.rows) * max(slope.error, *chance)
            if slope.value > max(HALF, margin):
                explained = slope.value**2 * float((direction**2).sum() / (error**2).sum())
                return Outcome("named", explained, slope.value < 1 / HALF)
            if abs(slope.value) < min(HALF, 1 - margin):
                return EXCLUDED
        return EXCLUDED if self.is_seen(wrong) else OPEN

    def is_seen(self, wrong: Array) -> bool:
        """Whether a cell of `wrong` is beyond the error budget of the span, twice for a safe distance."""
        return (
            float(Bounded(self.exact).multiples(wrong, self.healthy[0], self.dtype).max()) > 2 * RERUN_ALLOWED
        )

    def is_smaller_than(self, wrong: Array) -> bool:
        """Whether their error is clearly smaller than it would be with a mistake or in a lower precision."""
        if not np.array_equal(np.isfinite(wrong), np.isfinite(self.exact)):
            return True
        own, other = (np.sqrt((self.in_units(made) ** 2).mean(axis=-1)) for made in (self.theirs, wrong))
        ratio = other[other > 0] / np.maximum(own[other > 0], 1 / LARGEST)
        return bool(ratio.size) and float(np.median(ratio)) > LARGER


def gather(name: str, span: Tape, recorded: Recording) -> SpanEvidence:
    """Returns the evidence of a recorded value at the end of a span."""
    own = recorded[name]
    last = round_to(run_span(span, recorded, compute_in_float32)[name], own.dtype)
    each = run_span(span, recorded, round_each_step(own.dtype))[name]
    return SpanEvidence(name, span, own.value, own.dtype, run_span(span, recorded), (each, last))


def _balance_rows(direction: Array) -> Array:
    """Returns a factor for each row, so that no few rows outweigh the others."""
    weight = (direction**2).sum(axis=-1, keepdims=True)
    usual = np.median(weight[weight > 0]) if (weight > 0).any() else 1.0
    return np.asarray(np.sqrt(4 * usual / np.maximum(weight, 4 * usual)))
