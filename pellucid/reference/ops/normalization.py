"""Rows divided by one number: the root mean square of the norms, and the sums of linear attention."""

from typing import Any

import numpy as np

from pellucid.reference.op import Gradients, Ref, each, operation, reduced_row, rows


@operation(reduced_row, "{y} = 1 / √(mean_{row} {r0}² + {eps})")
def rstd(x: Any, eps: float) -> Any:
    """r = (mean(x²) + eps)^−½ along the last axis, for x [… C] and r [… 1]."""
    return ((x**2).mean(axis=-1, keepdims=True) + eps) ** -0.5


@rstd.gradient
def _(y: Ref, dy: Ref, x: Ref, eps: float) -> Gradients:
    yield x, rstd_back(x, y, dy, width=x.shape[-1])


@operation(each, "{y} = -{1}³ · {0} · {2} / {width}")
def rstd_back(x: Any, r: Any, dr: Any, width: int) -> Any:
    """dx = −r³ x dr / C."""
    return -(r**3) * x * dr / width


def _divisor(total: Any) -> Any:
    """Returns the total, or 1 where it is 0: a row of zeros stays a row of zeros."""
    return np.where(total > 0, total, 1.0)


@operation(rows, "{y} = {0} / Σ_{row} {r0}")
def l1_normalize(x: Any) -> Any:
    """y_i = x_i / Σ_j x_j along the last axis, for x ≥ 0; a row of zeros gives zeros."""
    return x / _divisor(x.sum(axis=-1, keepdims=True))


@l1_normalize.gradient
def _(y: Ref, dy: Ref, x: Ref) -> Gradients:
    yield x, l1_normalize_back(x, y, dy)


@operation(rows, "{y} = ({2} - Σ_{row} {r1} · {r2}) / Σ_{row} {r0}")
def l1_normalize_back(x: Any, y: Any, dy: Any) -> Any:
    """dx_i = (dy_i − Σ_j y_j dy_j) / Σ_j x_j, and 0 in a row of zeros."""
    total = x.sum(axis=-1, keepdims=True)
    return np.where(total > 0, (dy - (y * dy).sum(axis=-1, keepdims=True)) / _divisor(total), 0.0)


@operation(each, "{y} = {0} / {1}")
def safe_divide(a: Any, b: Any) -> Any:
    """y = a / b for a [… D] and b [… 1], and 0 where b is 0."""
    return np.where(b > 0, a / _divisor(b), 0.0)


@safe_divide.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref) -> Gradients:
    yield a, safe_divide(dy, b)
    yield b, safe_divide_back(y, dy, b)


@operation(reduced_row, "{y} = -Σ_{row} {r0} · {r1} / {2}")
def safe_divide_back(y: Any, dy: Any, b: Any) -> Any:
    """db = −Σ_i y_i dy_i / b, and 0 where b is 0."""
    return np.where(b > 0, -(y * dy).sum(axis=-1, keepdims=True) / _divisor(b), 0.0)
