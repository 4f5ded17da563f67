"""Shares: each number of a row divided by the row's sum."""

from typing import Any

import numpy as np

from pellucid.reference.op import Gradients, Ref, operation, rows


def _total(x: Any) -> Any:
    """The sum of each row, 1 where it is 0: a row that holds nothing gives nothing."""
    total = x.sum(axis=-1, keepdims=True)
    return np.where(total > 0, total, 1.0)


@operation(rows, "{y} = {0} / Σ_{row} {r0}")
def shares(x: Any) -> Any:
    """y_i = x_i / Σ_j x_j along the last axis, for numbers ≥ 0; a row of zeros alone gives zeros."""
    return x / _total(x)


@shares.gradient
def _(y: Ref, dy: Ref, x: Ref) -> Gradients:
    yield x, shares_back(x, y, dy)


@operation(rows, "{y} = ({2} - Σ_{row} {r1} · {r2}) / Σ_{row} {r0}")
def shares_back(x: Any, y: Any, dy: Any) -> Any:
    """dx_i = (dy_i − Σ_j y_j dy_j) / Σ_j x_j, and 0 in a row of zeros."""
    there = x.sum(axis=-1, keepdims=True) > 0
    return np.where(there, (dy - (y * dy).sum(axis=-1, keepdims=True)) / _total(x), 0.0)
