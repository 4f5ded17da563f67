"""Tests of random draws: whether frequencies follow probabilities, and numbers are uniform and independent.

Every bound is exceeded by chance less than once in 10 billion times.
"""

import math
from typing import NamedTuple

import numpy as np

from pellucid.reference.op import Array

DEVIATIONS = 6.5
"""Of a normal distribution: exceeded with a probability of 4e-11."""
CELLS = 32
"""Tokens are merged into about as many cells of similar probability."""


class Fit(NamedTuple):
    """The statistic G = 2 Σ observed · ln(observed / expected) over some cells, and its bound."""

    statistic: float
    bound: float
    cell: Array
    """The tokens of the cell that departs most."""
    observed: int
    expected: float

    @property
    def used(self) -> float:
        """The statistic over its bound."""
        return self.statistic / self.bound if self.bound else 0.0


def fit_frequencies(drawn: Array, probs: Array) -> Fit:
    """Returns how well drawn tokens [N] follow the probabilities [V].

    The bound is that of χ² with one degree of freedom fewer than there are cells (Wilson and Hilferty 1931).
    """
    total = len(drawn)
    counts = np.bincount(drawn, minlength=len(probs))
    order = np.argsort(-probs, kind="stable")
    edges = merge_cells(probs[order] * total, max(8.0, total / CELLS))
    observed = np.add.reduceat(counts[order], edges)
    expected = np.add.reduceat(probs[order], edges) * total
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0, observed * np.log(observed / expected), 0.0)
    departure = np.abs(observed - expected) / np.sqrt(np.maximum(expected, 1e-12))
    worst = int(departure.argmax())
    end = edges[worst + 1] if worst + 1 < len(edges) else len(order)
    statistic = float(2 * terms.sum()) if len(edges) > 1 else 0.0
    cell = order[edges[worst] : end]
    bound = compute_bound(len(edges) - 1)
    return Fit(statistic, bound, cell, int(observed[worst]), float(expected[worst]))


def merge_cells(expected: Array, least: float) -> Array:
    """Returns the first place of each cell, where every cell has at least `least` in all.

    >>> merge_cells(np.array([5.0, 3.0, 3.0, 1.0, 1.0]), 4.0).tolist()
    [0, 1]
    """
    edges, held = [0], 0.0
    rest = float(expected.sum())
    for place, value in enumerate(expected.tolist()):
        if held >= least and rest >= least:
            edges.append(place)
            held = 0.0
        held += value
        rest -= value
    return np.array(edges)


def compute_bound(freedom: int) -> float:
    """Returns what χ² with `freedom` degrees of freedom exceeds with a probability of about 4e-11 at most."""
    if freedom < 1:
        return 0.0
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + DEVIATIONS * math.sqrt(spread)) ** 3)


def find_largest_gap(numbers: Array) -> float:
    """Returns the largest distance between the numbers' distribution and the uniform one on [0, 1), as a
    share of the bound of Kolmogorov and Smirnov."""
    ordered, count = np.sort(numbers.ravel()), numbers.size
    steps = np.arange(count + 1) / count
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    return float(distance / math.sqrt(math.log(2 / 4e-11) / (2 * count)))


def measure_correlation(one: Array, other: Array) -> float:
    """Returns the correlation of two sequences of uniform numbers in standard deviations."""
    centered = (one.ravel() - 0.5) * (other.ravel() - 0.5) * 12
    return float(centered.mean() * math.sqrt(centered.size)) if centered.size else 0.0
