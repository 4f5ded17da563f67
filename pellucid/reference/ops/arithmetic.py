"""Sums, differences, interpolation and powers, cell by cell; products are einsums."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

from pellucid.reference.op import Gradients, Index, Ref, Shape, each, operation
from pellucid.reference.ops.einsum import einsum

LETTERS = "abcdefghij"


def _add_formula(index: Index, shapes: Sequence[Shape]) -> str:
    return "{y} = " + " + ".join(f"{{{i}}}" for i in range(len(shapes)))


@operation(each, _add_formula)
def add(*terms: Any) -> Any:
    """y = a + b + …; terms broadcast as in NumPy."""
    return functools.reduce(operator.add, terms)


@add.gradient
def _(y: Ref, dy: Ref, *terms: Ref) -> Gradients:
    for term in terms:
        yield term, sum_to_shape(dy, term.shape)


@operation(each, "{y} = {0} - {1}")
def subtract(a: Any, b: Any) -> Any:
    """y = a − b."""
    return a - b


@subtract.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref) -> Gradients:
    yield a, sum_to_shape(dy, a.shape)
    yield b, sum_to_shape(dy, b.shape, -1.0)


@operation(each, "{y} = {0} + {alpha} · {1}")
def scaled_sum(x: Any, update: Any, alpha: float) -> Any:
    """y = x + α u."""
    return x + alpha * update


@scaled_sum.gradient
def _(y: Ref, dy: Ref, x: Ref, update: Ref, alpha: float) -> Gradients:
    yield x, sum_to_shape(dy, x.shape)
    yield update, sum_to_shape(dy, update.shape, alpha)


@operation(each, "{y} = (1 - {share}) · {0} + {share} · {1}")
def lerp(a: Any, b: Any, share: float) -> Any:
    """y = (1 − α) a + α b, linear interpolation; `share` is α."""
    return (1 - share) * a + share * b


@lerp.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref, share: float) -> Gradients:
    yield a, sum_to_shape(dy, a.shape, 1 - share)
    yield b, sum_to_shape(dy, b.shape, share)


@operation(each, "{y} = {0}^{exponent}")
def power(x: Any, exponent: float) -> Any:
    """y = x^n: the square, the root (n = ½), the reciprocal (n = −1)."""
    return x**exponent


@power.gradient
def _(y: Ref, dy: Ref, x: Ref, exponent: float) -> Gradients:
    yield x, power_back(x, dy, exponent=exponent)


@operation(each, "{y} = {exponent} · {0}^({exponent} - 1) · {1}")
def power_back(x: Any, dy: Any, exponent: float) -> Any:
    """dx = n x^(n−1) dy."""
    return exponent * x ** (exponent - 1) * dy


def letters(shape: Shape, of: Shape) -> str:
    """Returns the einsum letters of an array that broadcasts to the shape `of`; a broadcast axis is "1"."""
    skipped = len(of) - len(shape)
    return "".join(
        "1" if size == 1 and of[skipped + i] != 1 else LETTERS[skipped + i] for i, size in enumerate(shape)
    )


def sum_to_shape(dy: Ref, shape: Shape, scale: float = 1.0) -> Any:
    """Returns the step of scale · dy summed over the axes along which an input of this shape broadcast."""
    if dy.shape == shape and scale == 1:
        return dy
    spec = f"{LETTERS[: len(dy.shape)]}->{letters(shape, dy.shape)}"
    return einsum(dy, spec=spec, **({} if scale == 1 else {"scale": scale}))
