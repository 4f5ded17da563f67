"""The bound on a step's rounding: (8 + √n) · u · Σ|terms|, a probabilistic one.

The worst case of n terms is n · u, far above what happens: errors of either sign add up like √n. The 8 is for
the few roundings that a step has besides its sum, however short that is. (Equal terms round alike, so they
count as more.)

`Bounded` arrays carry Σ|terms| through an operation's own forward, as recording arrays carry its expression;
so a new operation has its error budget without an entry in any table. The error terms below are the rules for
NumPy's functions.

Over many steps that were not recorded, Σ|terms| multiplies up to a bound that excuses anything. There the
steps are run once more and each is rounded (`round_to`): the error that this makes is the measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.base.dtypes import BY_NAME, Dtype
from pellucid.reference.op import Array
from pellucid.reference.tracked_array import TrackedArray, plain, ufunc_name

SINGLE = BY_NAME["float32"]
TINY = SINGLE.smallest_normal / SINGLE.roundoff
"""Products of factors that float32 flushes to 0 are below this; half precision is computed in float32."""
MIN_CELLS = 64
"""The fewest cells whose errors show what rounding does; those of fewer may all be small by chance."""


def round_to(value: Array, dtype: Dtype) -> Array:
    """Returns each number as the type holds it: to the nearest, ties to even, with fewer digits below the
    smallest normal number. Nothing overflows."""
    digits = round(-math.log2(dtype.roundoff))
    _, exponent = np.frexp(np.maximum(np.abs(value), dtype.smallest_normal))
    with np.errstate(all="ignore"):
        near = np.ldexp(np.rint(np.ldexp(value, digits - exponent)), exponent - digits)
    return np.where(np.isfinite(value), near, value)


class Bounded(TrackedArray):
    """An array, and Σ|terms| of each cell: the unit of its rounding error is u · Σ|terms|.

    `terms` None is an exact number, which is its only term. `count` is n, the number of terms of one cell.
    Infinities are exact, and have no terms.
    """

    def __init__(self, value: Any, terms: Any = None, count: float = 1.0) -> None:
        self.value: Array = np.asarray(value)
        self._terms: Array | None = terms
        self.count = count  # a float: only its root is used
        if terms is not None and not (is_finite := np.isfinite(self.value)).all():
            self._terms = np.where(is_finite, terms, 0.0)

    @property
    def is_exact(self) -> bool:
        return self._terms is None

    @property
    def terms(self) -> Array:
        """Σ|terms| of each cell."""
        return np.asarray(absolute(self.value)) if self._terms is None else self._terms

    @property
    def inherited(self) -> Array | float:
        """Σ|terms| − |value|: the error that the inputs bring along, and that a product multiplies."""
        return 0.0 if self._terms is None else self._terms - absolute(self.value)

    @property
    def allowed(self) -> float:
        """The units that rounding may use: 8 + √n."""
        return 8 + math.sqrt(self.count)

    def units(self, got: Array, dtype: Dtype) -> Array:
        """Returns |got − value| of each cell in units of u · Σ|terms|.

        A cell without terms, or infinite, must be the same: it is 0 or ∞ units off. Below the type's smallest
        normal number digits are lost, so the unit shrinks no further.
        """
        terms = np.where(np.isnan(self.terms), np.inf, self.terms)  # ∞ · 0 on the way: no bound at all
        with np.errstate(all="ignore"):
            error = np.abs(got - self.value) / (dtype.roundoff * np.maximum(terms, dtype.smallest_normal))
        is_judged = (terms > 0) & np.isfinite(got) & np.isfinite(self.value)
        return np.where(self._is_same(got, dtype), 0.0, np.where(is_judged, error, np.inf))

    def limit(self, dtype: Dtype) -> float:
        """Returns the smallest ε for which (1 + ε) times this value is more than rounding allows: of the cell
        with the least cancellation, (8 + √n) · u · Σ|terms| / |value|."""
        return self._smallest_ratio(self.allowed * dtype.roundoff * self.terms)

    def multiples(self, got: Array, narrow: Array, dtype: Dtype, is_span: bool = False) -> Array:
        """Returns |got − value| of each cell in multiples of the error of `narrow`, the rounded steps."""
        with np.errstate(all="ignore"):
            error = np.abs(got - self.value) / self._rerun_error(narrow, dtype, is_span)
        is_finite = np.isfinite(got) & np.isfinite(self.value)
        return np.where(self._is_same(got, dtype), 0.0, np.where(is_finite, error, np.inf))

    def rerun_limit(self, narrow: Array, dtype: Dtype, allowed: float, is_span: bool = False) -> float:
        """Returns the smallest ε for which (1 + ε) times this value is more than `allowed` multiples of the
        error of `narrow`."""
        return self._smallest_ratio(allowed * self._rerun_error(narrow, dtype, is_span))

    def _rerun_error(self, narrow: Array, dtype: Dtype, is_span: bool) -> Array:
        """Returns the error of `narrow` in each cell, plus a unit in its last place, and in 16 bits a unit of
        float32, in which it is computed.

        The error of one cell may be small by chance: a row counts by its worst cell, and by no less than the
        median row; where rows are short, the whole value counts by its worst cell. At the end of a span
        Σ|terms| has multiplied up, so there the unit of float32 is no more than the last place of the largest
        cell.
        """
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.abs(narrow - self.value))
            is_wide = self.shape[-1] >= MIN_CELLS
            row = apart.max(axis=-1, keepdims=True) if is_wide else apart.max(keepdims=True)
            last_place = dtype.roundoff * np.maximum(absolute(self.value), dtype.smallest_normal)
            if dtype.roundoff > SINGLE.roundoff:
                single = SINGLE.roundoff * np.nan_to_num(self.terms)
                largest = np.abs(self.value[np.isfinite(self.value)]).max(initial=0.0)
                last_place = last_place + np.minimum(single, dtype.roundoff * largest if is_span else np.inf)
        return np.asarray(np.maximum(row, np.median(row)) + last_place)

    def _smallest_ratio(self, error: Array) -> float:
        """Returns the smallest error of a cell relative to its value, ∞ where every cell is 0 or infinite."""
        size = np.where(np.isfinite(self.value), absolute(self.value), 0.0)
        with np.errstate(all="ignore"):
            ratios = np.where(size > 0, error / size, np.inf)
        return float(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf).min(initial=np.inf))

    def _is_same(self, got: Array, dtype: Dtype) -> Array:
        """Returns whether each cell is the same; ±∞ is what a type gives for a number beyond its largest,
        and where both are tiny, factors on the way may have been flushed to 0."""
        overflows = np.isinf(got) & (np.abs(self.value) > dtype.largest * (1 - dtype.roundoff))
        is_overflow = overflows & (np.sign(got) == np.sign(self.value))
        is_equal = (got == self.value) | (np.isnan(got) & np.isnan(self.value)) | is_overflow
        if dtype.roundoff >= SINGLE.roundoff:
            is_equal |= (np.abs(got) < TINY) & (np.abs(self.value) < TINY)
        return np.asarray(is_equal)

    # ---- NumPy's functions

    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            value = self.compute_ufunc(ufunc, inputs)
            if value.dtype == bool:
                return value
            args = [as_bounded(x) for x in inputs]
            rule = RULES.get(ufunc_name(ufunc))
            terms = rule(value, *args) if rule else _numeric_terms(ufunc, value, args)
        return Bounded(value, terms, COUNTS.get(ufunc, max)(*(x.count for x in args), 0))

    @classmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> Bounded:
        holds, yes, no = plain(condition), as_bounded(yes), as_bounded(no)
        terms = np.where(holds, yes.terms, no.terms)
        return Bounded(np.where(holds, yes.value, no.value), terms, max(yes.count, no.count))

    @classmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> Bounded:
        if not isinstance(source, tuple | list):
            terms = None if source._terms is None else function(source._terms)
            return Bounded(function(source.value), terms, source.count)
        parts = [as_bounded(x) for x in source]
        count = max(x.count for x in parts)
        return Bounded(function([x.value for x in parts]), function([x.terms for x in parts]), count)

    def astype(self, dtype: Any) -> Bounded:
        return Bounded(self.value.astype(dtype), self._terms, self.count)

    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> Bounded:
        if function is np.max:
            return self._largest(axis, keepdims)
        value = np.asarray(function(self.value, axis=axis, keepdims=keepdims))
        length = count_equal_terms(self.value) if value.size == 1 else self.size / max(value.size, 1)
        terms = function(self.terms, axis=axis, keepdims=keepdims)
        return Bounded(value, terms, chain_counts(self.count, length))

    def cumsum(self) -> Bounded:
        terms = np.cumsum(self.terms, axis=-1)
        return Bounded(np.cumsum(self.value, axis=-1), terms, chain_counts(self.count, self.shape[-1]))

    def _largest(self, axis: int | None, keepdims: bool) -> Bounded:
        """Returns the largest number, with the terms of the cell (or the equal cells) that it came from."""
        value = self.value.max(axis=axis, keepdims=keepdims)
        if self._terms is None:
            return Bounded(value)
        is_largest = self.value == (value if keepdims or axis is None else np.expand_dims(value, axis))
        return Bounded(
            value, np.where(is_largest, self._terms, 0.0).max(axis=axis, keepdims=keepdims), self.count
        )

    @classmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> Bounded:
        """Σ of products: the inherited error of each operand is multiplied by the sizes of the others."""
        args = [as_bounded(x) for x in arrays]
        left, _, result = spec.partition("->")
        sizes = {
            i: n
            for term, x in zip(left.split(","), args, strict=True)
            for i, n in zip(term, x.shape, strict=True)
        }
        summed = [letter for letter in sizes if letter not in result]

        def product(operands: list[Array], into: str = result) -> Array:
            return np.asarray(np.einsum(f"{left}->{into}", *operands, optimize=len(operands) > 1))

        value = product([x.value for x in args])
        length: float = math.prod(sizes[letter] for letter in summed)
        if value.size == 1 and length > 1:
            length = count_equal_terms(product([x.value for x in args], "".join(summed)))

        inexact = [i for i, x in enumerate(args) if x._terms is not None]
        if len(inexact) <= 1:
            terms = product([x.terms for x in args])
        else:
            sizes_alone = [absolute(x.value) for x in args]
            terms = product(sizes_alone)
            for i in inexact:
                terms = terms + product(
                    [np.asarray(x.inherited) if i == j else sizes_alone[j] for j, x in enumerate(args)]
                )
        return Bounded(value, terms, chain_counts(max(x.count for x in args), length))


def bound_table(value: Array, dtype: Dtype) -> Bounded:
    """Returns a table that each program computes for itself, such as angles: it is expected to have float32's
    digits, no more and no fewer, whatever the type of the run."""
    inherited = min(1.0, SINGLE.roundoff / dtype.roundoff)
    return Bounded(value, (1 + inherited) * absolute(value))


def as_bounded(x: Any) -> Bounded:
    return x if isinstance(x, Bounded) else Bounded(x)


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
