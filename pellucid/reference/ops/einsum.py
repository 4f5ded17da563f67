"""Einsum with grouped letters, a scale and an optional bias: every product and regrouping.

    btc,(hd)c+(hd)->bhtd     a linear layer with bias, split into heads
    b(kg)td,bksd->b(kg)ts    the scores of MHA, GQA and MQA alike
    bhtd->bt(hd)             heads concatenated
    btc->bt1                 a sum over channels that keeps its axis

A letter that the result does not have is summed over; a letter that only the result has is repeated, and its
size must be given, as must all sizes but one of a group whose letters stand nowhere else. Gradients are
einsums.
"""

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pellucid.reference.op import (
    Array,
    Attrs,
    Box,
    Gradients,
    Index,
    Reads,
    Ref,
    Shape,
    operation,
    zeros,
)

Axes = tuple[str, ...]
"""One entry per axis: "t" a letter, "hd" a group, "" an axis of length 1."""


class Spec(NamedTuple):
    """A parsed spec: the axes of each factor, of the bias where there is one, and of the result."""

    inputs: tuple[Axes, ...]
    bias: Axes | None
    result: Axes

    @property
    def operands(self) -> tuple[Axes, ...]:
        return self.inputs if self.bias is None else (*self.inputs, self.bias)


def axes_of(term: str) -> Axes:
    """Returns the axes of one term.

    >>> axes_of("b(kg)t1")
    ('b', 'kg', 't', '')
    """
    return tuple(re.sub(r"[()1]", "", axis) for axis in re.findall(r"\(\w+\)|\w", term))


@cache
def parse(spec: str) -> Spec:
    """Returns the axes of each term of `A,B+bias->result`."""
    if any(
        len(set(term)) < len(term) for term in (re.sub(r"[()1]", "", t) for t in re.split(r",|\+|->", spec))
    ):
        raise ValueError(f"{spec!r} has a letter twice in one term")
    left, _, right = spec.partition("->")
    products, plus, bias = left.partition("+")
    inputs = tuple(axes_of(term) for term in products.split(","))
    return Spec(inputs, axes_of(bias) if plus else None, axes_of(right))


def format_axes(axes: Axes) -> str:
    """Returns the term of these axes: the inverse of `axes_of`."""
    return "".join("1" if axis == "" else axis if len(axis) == 1 else f"({axis})" for axis in axes)


def sizes_of(operands: Sequence[Axes], shapes: Sequence[Shape], given: dict[str, int]) -> dict[str, int]:
    """Returns every letter's size: as given, from its own axis, or from a group with one unknown letter."""
    for axes, shape in zip(operands, shapes, strict=True):
        if len(axes) != len(shape):
            raise ValueError(f"{format_axes(axes)!r} names {len(axes)} axes; the array has {len(shape)}")
    sizes = dict(given)
    pairs = [
        pair for axes, shape in zip(operands, shapes, strict=True) for pair in zip(axes, shape, strict=True)
    ]
    for axis, size in sorted(pairs, key=lambda pair: len(pair[0])):
        unknown = [letter for letter in axis if letter not in sizes]
        known = math.prod(sizes[letter] for letter in axis if letter in sizes)
        if len(unknown) == 1 and known and size % known == 0:
            sizes[unknown[0]] = size // known
        elif unknown or size != known:
            raise ValueError(f"an axis of length {size} cannot be ({axis}) with sizes {sizes}")
    return sizes


def format_scale(scale: float, digits: int = 5) -> str:
    """Returns a factor as text, with this many significant digits.

    >>> format_scale(1.0), format_scale(0.25), format_scale(2**-0.5), format_scale(-1.0), format_scale(0.3)
    ('', ' / 4', ' / √2', ' · (-1)', ' · 0.3')
    """
    if scale == 1:
        return ""
    for power, sign in ((1, ""), (2, "√")):
        whole = round(abs(scale) ** -power) if 0 < abs(scale) < 1 else 0
        if whole > 1 and scale > 0 and math.isclose(scale**power * whole, 1, rel_tol=1e-14):
            return f" / {sign}{whole}"
    return f" · {scale:.{digits}g}" if scale > 0 else f" · ({scale:.{digits}g})"


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """The index fixes the result's letters; the others run over their whole axes."""
    given = {key: value for key, value in attrs.items() if key not in ("spec", "scale")}
    parsed = parse(attrs["spec"])
    sizes = sizes_of(parsed.operands, shapes, given)
    fixed: dict[str, int] = {}
    for axis, i in zip(parsed.result, index, strict=True):
        where = np.unravel_index(i, [sizes[letter] for letter in axis]) if axis else ()
        fixed |= zip(axis, map(int, where), strict=True)

    def positions(axis: str) -> Array:
        grid = np.arange(math.prod(sizes[letter] for letter in axis))
        grid = grid.reshape([sizes[letter] for letter in axis])
        return np.atleast_1d(grid[tuple(fixed.get(letter, slice(None)) for letter in axis)].ravel())

    boxes: tuple[Box, ...] = tuple(tuple(positions(axis) for axis in axes) for axes in parsed.operands)
    small = attrs | {letter: 1 for letter in given if letter in fixed}
    return Reads(boxes, small, zeros(index))


@operation(_reads, "{y} = Σ …")
def einsum(*arrays: Any, spec: str, scale: float = 1.0, **sizes: int) -> Any:
    """y = scale · Σ of products, plus the bias."""
    parsed = parse(spec)
    size = sizes_of(parsed.operands, [x.shape for x in arrays], sizes)
    split = [
        np.reshape(x, tuple(size[letter] for letter in "".join(axes)))
        for x, axes in zip(arrays, parsed.operands, strict=True)
    ]
    terms = ["".join(axes) for axes in parsed.inputs]
    letters = "".join(parsed.result)
    found = "".join(letter for letter in letters if any(letter in term for term in terms))
    total = product(terms, found, split[: len(terms)])
    if scale != 1:
        total = total * scale
    if parsed.bias is not None:
        bias, ordered = "".join(parsed.bias), "".join(i for i in found if i in "".join(parsed.bias))
        shift = np.einsum(f"{bias}->{ordered}", split[-1])
        total = total + np.reshape(shift, tuple(size[i] if i in bias else 1 for i in found))
    if found != letters:  # letters that only the result has: repeat
        total = np.reshape(total, tuple(size[letter] if letter in found else 1 for letter in letters))
        total = np.broadcast_to(total, tuple(size[letter] for letter in letters))
    return np.reshape(total, tuple(math.prod(size[letter] for letter in axis) for axis in parsed.result))


def product(terms: list[str], result: str, arrays: list[Any]) -> Any:
    """Returns Σ of products by letters. NumPy contracts from the last operand to the first and transposes the
    result at the end; with the operands in reverse it needs no transposed copy of a large one."""
    return np.einsum(f"{','.join(terms[::-1])}->{result}", *arrays[::-1], optimize=len(terms) > 1)


def result_shape(shapes: Sequence[Shape], spec: str, scale: float = 1.0, **sizes: int) -> Shape:
    """Returns the shape of an einsum's result, without computing it."""
    parsed = parse(spec)
    size = sizes_of(parsed.operands, shapes, sizes)
    return tuple(math.prod(size[letter] for letter in axis) for axis in parsed.result)


@einsum.gradient
def _(y: Ref, dy: Ref, *inputs: Ref, spec: str, scale: float = 1.0, **given: int) -> Gradients:
    """Each operand's gradient is the einsum of dy with the other operands."""
    parsed = parse(spec)
    sizes = sizes_of(parsed.operands, [ref.shape for ref in inputs], given)
    for i, (ref, axes) in enumerate(zip(inputs, parsed.operands, strict=True)):
        is_bias = i == len(parsed.inputs)
        others = [] if is_bias else [j for j in range(len(parsed.inputs)) if j != i]
        terms = [parsed.result, *(parsed.inputs[j] for j in others)]
        alone = {axis for term in terms for axis in term if len(axis) == 1}
        wanted = {letter for term in (*terms, axes) for letter in "".join(term)} - alone
        known = {letter: sizes[letter] for letter in sorted(wanted)}
        factor = {} if is_bias or scale == 1 else {"scale": scale}
        back = f"{','.join(map(format_axes, terms))}->{format_axes(axes)}"
        yield ref, einsum(dy, *(inputs[j] for j in others), spec=back, **factor, **known)
