"""Σ|terms| of NumPy's functions: what each of them adds, and what it makes of the error of its arguments.

In each rule `terms` is Σ|terms| of an argument and `inherited` the part of it beyond |value|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.op import Array

if TYPE_CHECKING:
    from pellucid.verification.rounding import Bounded

COUNTS: dict[np.ufunc, Callable[..., float]] = {
    np.add: lambda a, b, _: a + b,
    np.subtract: lambda a, b, _: a + b,
}
"""n of a function's value by the n of its arguments; of all others, the largest."""


def absolute(value: Array) -> Array:
    """Returns |value|, 0 where it is infinite: −∞ marks a masked cell, and is exact."""
    size = np.abs(value)
    return size if np.isfinite(size).all() else np.where(np.isfinite(size), size, 0.0)


def chain_counts(first: float, then: float) -> float:
    """Returns n for a sum of sums: the errors √n of both add up."""
    return max(first, then) if min(first, then) <= 1 else (math.sqrt(first) + math.sqrt(then)) ** 2


def count_equal_terms(terms: Array) -> float:
    """Returns n for the sum of one cell: the number of its terms, where no two are equal.

    Equal terms round the same way each time they are added, so m of them count as m²: a uniform pattern over
    equal values is off by n and not by √n.
    """
    sizes = absolute(terms).ravel()
    grid = np.floor(sizes / max(BY_NAME["float32"].roundoff * float(sizes.sum()), 1e-300))
    return float((np.unique(grid[sizes > 0], return_counts=True)[1].astype(float) ** 2).sum())


def terms_of(ufunc: np.ufunc, name: str, value: Array, args: list[Bounded]) -> Array:
    """Returns Σ|terms| of the value of a function of these arguments."""
    return RULES[name](value, *args) if name in RULES else _numeric_terms(ufunc, value, args)


def _product(value: Array, a: Bounded, b: Bounded) -> Array:
    if a.is_exact or b.is_exact:
        return np.asarray(a.terms * b.terms)
    return np.asarray(a.terms * b.terms - a.inherited * b.inherited)


def _quotient(value: Array, a: Bounded, b: Bounded) -> Array:
    terms = a.terms / absolute(b.value)
    return np.asarray(terms if b.is_exact else terms + np.abs(value) * b.inherited / absolute(b.value))


def _power(value: Array, x: Bounded, n: Bounded) -> Array:
    """The inherited error of x counts n-fold; where x is 0, only a first power passes it on."""
    relative = np.where(x.value == 0, 0.0, x.inherited / np.where(x.value == 0, 1.0, np.abs(x.value)))
    rest = np.where((x.value == 0) & (n.value == 1), x.inherited, 0.0)
    return np.asarray(absolute(value) * (1 + np.abs(n.value) * relative) + rest)


def _exponential(value: Array, x: Bounded) -> Array:
    """The argument counts as a term: where x was rounded, exp(x) is off by u · |x| of itself."""
    return np.asarray(absolute(value) * (1 + x.terms))


def _angle(derivative: Callable[[Array], Array]) -> Callable[..., Array]:
    """An angle is an input: only its inherited error counts, or at position 5,000 anything would pass."""
    return lambda value, x: np.asarray(absolute(value) + np.abs(derivative(x.value)) * x.inherited)


def _curve(derivative: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """|y| + |f'(x)| · Σ|terms of x|."""
    return lambda value, x: np.asarray(absolute(value) + np.abs(derivative(x.value, value)) * x.terms)


def _numeric_terms(ufunc: np.ufunc, value: Array, args: list[Bounded]) -> Array:
    """A function without a rule: the derivative by each argument is measured."""
    total: Any = absolute(value)
    for i, x in enumerate(args):
        step = 1e-6 * np.maximum(np.abs(x.value), 1e-3)
        near = [[y.value + sign * step * (j == i) for j, y in enumerate(args)] for sign in (-1, 1)]
        rise = np.asarray(ufunc(*near[1])).astype(float) - np.asarray(ufunc(*near[0])).astype(float)
        total = total + np.nan_to_num(np.abs(rise) / (2 * step)) * x.terms
    return np.asarray(total)


RULES: dict[str, Callable[..., Array]] = {
    "add": lambda value, a, b: a.terms + b.terms,
    "subtract": lambda value, a, b: a.terms + b.terms,
    "multiply": _product,
    "divide": _quotient,
    "power": _power,
    "exp": _exponential,
    "negative": lambda value, x: x.terms,
    "absolute": lambda value, x: x.terms,
    "rint": lambda value, x: absolute(value),
    "maximum": lambda value, a, b: np.where(a.value >= b.value, a.terms, b.terms),
    "minimum": lambda value, a, b: np.where(a.value <= b.value, a.terms, b.terms),
    "sqrt": lambda value, x: (
        absolute(value) * (1 + np.where(value > 0, x.inherited / (2 * absolute(x.value)), 0.0))
    ),
    "log": _curve(lambda x, y: np.where(x > 0, 1 / x, 0.0)),
    "tanh": _curve(lambda x, y: 1 - y**2),
    "erf": _curve(lambda x, y: 2 / math.sqrt(math.pi) * np.exp(-(x**2))),
    "sin": _angle(np.cos),
    "cos": _angle(np.sin),
}
