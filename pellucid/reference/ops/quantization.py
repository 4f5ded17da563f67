"""Quantization: small integers, with a scale (and a minimum) for each group of a row.

The integers are constants: rounding is a staircase, whose derivative is 0 or does not exist. Scales and
minimums have gradients as any factor and term has.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Attrs, Gradients, Index, Reads, Ref, Shape, one, operation, same_cell, zeros
from pellucid.reference.ops.einsum import product

LEVELS = 127 * 256
"""The largest 16-bit integer of an activation: its high byte is at most 127, so that it fits an int8."""
TINY = np.float32(1e-30)


def _repeat_groups(x: Any, width: int, group: int) -> Any:
    """Returns the number of the group of each entry, [… G] to [… width]."""
    return x[..., np.arange(width) // group]


def _entry_and_group(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell [… i] reads the same cell of the first input, and of the others the number of its group."""
    first, *others = shapes
    of_group = (*index[:-1], index[-1] // attrs["group"])
    boxes = (same_cell(index, first), *(same_cell(of_group, shape) for shape in others))
    return Reads(boxes, attrs, zeros(index))


# ---- weights


def _dequantize_formula(index: Index, shapes: Sequence[Shape], group: int) -> str:
    return "{y} = {1} · {0}" + " + {2}" * (len(shapes) > 2)


@operation(_entry_and_group, _dequantize_formula, reads_integers=True)
def dequantize(integers: Any, scales: Any, *minimums: Any, group: int) -> Any:
    """W[o, i] = s[o, g] · q[o, i] (+ m[o, g]), g = ⌊i / group⌋, for q [O I], s and m [O G]."""
    width = integers.shape[-1]
    numbers = _repeat_groups(scales, width, group) * integers
    return numbers + _repeat_groups(minimums[0], width, group) if minimums else numbers


@dequantize.gradient
def _(y: Ref, dy: Ref, integers: Ref, scales: Ref, *minimums: Ref, group: int) -> Gradients:
    """The integers are constants."""
    yield scales, group_sum(dy, integers, group=group)
    for minimum in minimums:
        yield minimum, group_sum(dy, group=group)


def _sum_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    group, width = attrs["group"], shapes[0][-1]
    entries = np.arange(index[-1] * group, min((index[-1] + 1) * group, width))
    box = (*(one(i) for i in index[:-1]), entries)
    return Reads((box,) * len(shapes), attrs, zeros(index))


def _sum_formula(index: Index, shapes: Sequence[Shape], group: int) -> str:
    return "{y} = Σ " + " · ".join(f"{{{i}}}" for i in range(len(shapes))) + " over the group"


@operation(_sum_reads, _sum_formula, reads_integers=True)
def group_sum(*factors: Any, group: int) -> Any:
    """y[o, g] = Σ of the product of the factors [O I] over group g, [O G]: the gradient of a scale."""
    width = factors[0].shape[-1]
    places, groups = np.arange(width) // group, -(-width // group)
    is_inside = (places[:, None] == np.arange(groups)).astype(factors[0].dtype)
    return product([*["oi"] * len(factors), "ig"], "og", [*factors, is_inside])


def _quantize_formula(index: Index, shapes: Sequence[Shape], group: int, low: int, high: int) -> str:
    shifted = "({0} - {2})" if len(shapes) > 2 else "{0}"
    return f"{{y}} = min(max(round({shifted} / {{1}}), {{low}}), {{high}})"


@operation(_entry_and_group, _quantize_formula)
def quantize(x: Any, scales: Any, *minimums: Any, group: int, low: int, high: int) -> Any:
    """q[o, i] = clip(round((x[o, i] − m[o, g]) / s[o, g]), low, high) as int8, ties to even; where s is 0, 1
    divides."""
    width = x.shape[-1]
    shifted = x - _repeat_groups(minimums[0], width, group) if minimums else x
    divisor = np.where(scales == 0, x.dtype.type(1), scales)
    rounded = np.rint(shifted / _repeat_groups(divisor, width, group))
    return np.minimum(np.maximum(rounded, low), high).astype(np.int8)


# ---- activations


def _group_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads its group."""
    group, width = attrs["group"], shapes[0][-1]
    first = index[-1] // group * group
    box = (*(one(i) for i in index[:-1]), np.arange(first, min(first + group, width)))
    return Reads((box,), attrs, (*zeros(index[:-1]), index[-1] - first))


@operation(_group_reads, f"{{y}} = m / {LEVELS} · round({{0}} · ({LEVELS} / m)),  m = max_g abs({{r0}})")
def round_activations(x: Any, group: int = 32) -> Any:
    """x̂ = s · q along the last axis: s = m / 32512, q = round(x · (32512 / m)), m = max|x| of the group.

    So the compiled CPU decoder holds activations: as 16-bit integers q. s, 32512 / m and its product with x
    are rounded to float32, x̂ itself is exact. A group without a number of at least 1e-30 becomes zeros, so
    that 32512 / m does not overflow; the last group may be shorter.
    """
    lead, width = x.shape[:-1], x.shape[-1]
    groups = -(-width // group)
    padded = x[..., np.minimum(np.arange(groups * group), width - 1)]
    grouped = np.reshape(padded, (*lead, groups, group))
    largest = np.maximum(grouped, -grouped).max(axis=-1)
    factor = _to_single(LEVELS / np.where(largest < TINY, x.dtype.type(np.inf), largest))
    integers = np.rint(_to_single(x * _repeat_groups(factor, width, group)))
    return _repeat_groups(_to_single(largest / LEVELS), width, group) * integers


def _to_single(x: Any) -> Any:
    """Returns x rounded to float32, in its dtype. The quotient or product of two float32 numbers, computed
    in float64 and rounded once more, is that of float32: 53 bits are more than twice 24."""
    return x.astype(np.float32).astype(x.dtype)
