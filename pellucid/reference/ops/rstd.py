"""One over the root mean square of a row: what both norms divide by."""

from collections.abc import Sequence
from typing import Any

from pellucid.reference.op import (
    Attrs,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    each,
    operation,
    same_row,
    zeros,
)


def _row_to_keep(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    return Reads((same_row(index[:-1], shapes[0]),), attrs, zeros(index))


@operation(_row_to_keep, "{y} = 1 / √(mean_{row} {r0}² + {eps})")
def rstd(x: Any, eps: float) -> Any:
    """r = (mean(x²) + eps)^−½ along the last axis, which stays with length 1."""
    return ((x**2).mean(axis=-1, keepdims=True) + eps) ** -0.5


@rstd.gradient
def _(y: Ref, dy: Ref, x: Ref, eps: float) -> Gradients:
    yield x, rstd_back(x, y, dy, width=x.shape[-1])


@operation(each, "{y} = -{1}³ · {0} · {2} / {width}")
def rstd_back(x: Any, r: Any, dr: Any, width: int) -> Any:
    """dx = −r³ x dr / C."""
    return -(r**3) * x * dr / width
