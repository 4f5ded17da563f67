"""Sums, differences and powers, cell by cell; products and quotients are einsums of them."""

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
    """y = a + b + …; a term with fewer axes, or with an axis of length 1, is shared."""
    return functools.reduce(operator.add, terms)


@add.gradient
def _(y: Ref, dy: Ref, *terms: Ref) -> Gradients:
    for term in terms:
        yield term, shared(dy, term.shape)


@operation(each, "{y} = {0} - {1}")
def subtract(a: Any, b: Any) -> Any:
    """y = a − b."""
    return a - b


@subtract.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref) -> Gradients:
    yield a, shared(dy, a.shape)
    yield b, shared(dy, b.shape, -1.0)


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
    """The letters of an array that is shared over one of shape `of`; an axis of length 1 is "1"."""
    skipped = len(of) - len(shape)
    return "".join(
        "1" if size == 1 and of[skipped + i] != 1 else LETTERS[skipped + i] for i, size in enumerate(shape)
    )


def shared(dy: Ref, shape: Shape, scale: float = 1.0) -> Any:
    """The gradient of a term of that shape in a sum: dy, summed over the axes it was shared along."""
    if dy.shape == shape and scale == 1:
        return dy
    spec = f"{LETTERS[: len(dy.shape)]}->{letters(shape, dy.shape)}"
    return einsum(dy, spec=spec, **({} if scale == 1 else {"scale": scale}))
