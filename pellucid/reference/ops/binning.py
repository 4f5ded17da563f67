"""Binning, the steps of a calibration: the bin of each number, sums over a bin, and magnitudes.

They measure a model and are not trained through: none has a gradient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Attrs, Index, Reads, Shape, all_of, each, operation, same_cell, zeros
from pellucid.reference.ops.einsum import product
from pellucid.reference.tracked_array import plain


def _index_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    x, edges = shapes
    return Reads((same_cell(index, x), (all_of(edges[0]),)), attrs, zeros(index))


@operation(_index_reads, "{y} = the m whose {1[m]} is the largest below {0}")
def bin_index(x: Any, edges: Any) -> Any:
    """index = the bin m with edges_m < x ≤ edges_{m+1}, for x [N] and rising edges [M+1], as int64 [N].

    A number at or below the first edge is in the first bin, one above the last edge in the last.
    """
    found = np.searchsorted(plain(edges), plain(x), side="left") - 1
    index = np.clip(found, 0, edges.shape[0] - 2)
    low, high = edges[index], edges[index + 1]
    is_inside = (low < x) & (x <= high)
    return np.where(is_inside, index, index).astype(np.int64)


def _sum_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    small = attrs | {"first": attrs.get("first", 0) + index[0], "bins": 1}
    return Reads(tuple((all_of(shape[0]),) for shape in shapes), small, zeros(index))


@operation(_sum_reads, "{y} = Σ {0} over the predictions of this bin", sizes=("bins",))
def bin_sum(x: Any, index: Any, bins: int, first: int = 0) -> Any:
    """y_m = Σ of x over the n whose index is m, for x [N] and index [N], [M]."""
    is_inside = (index[:, None] == np.arange(first, first + bins)).astype(x.dtype)
    return product(["nm", "n"], "m", [is_inside, x])


@operation(each, "{y} = abs({0})")
def absolute(x: Any) -> Any:
    """y = |x|."""
    return np.maximum(x, -x)
