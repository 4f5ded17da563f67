"""How far a step may be off by rounding alone: (8 + √n) · u · Σ|terms|.

`Bounded` arrays carry Σ|terms| through an operation's own forward, as recording arrays carry its expression;
so a new operation has its error budget the day it is written, and no table of budgets can fall behind.

Over many steps that nobody recorded, Σ|terms| multiplies up to a bound that excuses anything. There the steps
are taken once more and each is rounded (`rounded`): what that does, and not what it could do, is the measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pellucid.reference.op import Array
from pellucid.reference.tracked_array import TrackedArray, plain, ufunc_name


class Precision(NamedTuple):
    """A type of numbers: its unit round-off, and the smallest number that it holds to all its digits."""

    unit: float
    smallest: float


PRECISIONS = {
    "bfloat16": Precision(2.0**-8, 2.0**-126),
    "float16": Precision(2.0**-11, 2.0**-14),
    "float32": Precision(2.0**-24, 2.0**-126),
    "float64": Precision(2.0**-53, 2.0**-1022),
}


ENOUGH = 64
"""So many cells show what rounding does; fewer may all have been lucky."""


def rounded(value: Array, precision: Precision) -> Array:
    """Each number as the type would hold it: to the nearest, ties to even, with fewer digits below the
    smallest full number. Nothing overflows."""
    digits = round(-math.log2(precision.unit))
    _, exponent = np.frexp(np.maximum(np.abs(value), precision.smallest))
    with np.errstate(all="ignore"):
        near = np.ldexp(np.rint(np.ldexp(value, digits - exponent)), exponent - digits)
    return np.where(np.isfinite(value), near, value)


class Bounded(TrackedArray):
    """An array, and for each cell Σ|terms|: its error is so many times the unit round-off.

    `bulk` None is a number that nobody rounded, one term by itself. `count` is n, the terms of one cell. What
    exceeds |value| in the bulk is the doubt that a product hands on; infinities are exact, and have none.
    """

    def __init__(self, value: Any, bulk: Any = None, count: float = 1.0) -> None:
        self.value: Array = np.asarray(value)
        self._bulk: Array | None = bulk
        self.count = count  # a float: it only ever goes under a root
        if bulk is not None and not (finite := np.isfinite(self.value)).all():
            self._bulk = np.where(finite, bulk, 0.0)

    @property
    def bulk(self) -> Array:
        return np.asarray(_size(self.value)) if self._bulk is None else self._bulk

    @property
    def doubt(self) -> Array | float:
        return 0.0 if self._bulk is None else self._bulk - _size(self.value)

    @property
    def allowed(self) -> float:
        """The units that rounding may use: 8 + √n."""
        return 8 + math.sqrt(self.count)

    def units(self, got: Array, precision: Precision) -> Array:
        """|error| of somebody's numbers in units of u · Σ|terms|.

        Where there is no term, or infinity, the number must be the same: it is 0 or ∞ units off. Below the
        type's smallest full number its digits thin out, so the unit shrinks no further.
        """
        bulk = np.where(np.isnan(self.bulk), np.inf, self.bulk)  # ∞ · 0 on the way: no bound at all
        same = (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        with np.errstate(all="ignore"):
            error = np.abs(got - self.value) / (precision.unit * np.maximum(bulk, precision.smallest))
        judged = (bulk > 0) & np.isfinite(got) & np.isfinite(self.value)
        return np.where(same, 0.0, np.where(judged, error, np.inf))

    def against(self, narrow: Array, got: Array, precision: Precision) -> Array:
        """|error| of somebody's numbers in multiples of what rounding did to the same row in a replay.

        One cell may have been lucky, so a row counts by its worst, and no row by less than the median row;
        where rows are short, the whole value counts by its worst.
        """
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.abs(narrow - self.value))
            row = apart.max(axis=-1, keepdims=True) if self.shape[-1] >= ENOUGH else apart.max(keepdims=True)
            one = np.maximum(row, np.median(row)) + precision.unit * np.maximum(
                _size(self.value), precision.smallest
            )
            error = np.abs(got - self.value) / one
        same = (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        return np.where(same, 0.0, np.where(np.isfinite(got) & np.isfinite(self.value), error, np.inf))

    # ---- NumPy's functions

    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            value = self.compute_ufunc(ufunc, inputs)
            if value.dtype == bool:
                return value
            args = [_bounded(x) for x in inputs]
            bulk = _BULK.get(ufunc_name(ufunc), _any_function(ufunc))(value, *args)
        return Bounded(value, bulk, _COUNT.get(ufunc, max)(*(x.count for x in args), 0))

    @classmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> Bounded:
        holds, yes, no = plain(condition), _bounded(yes), _bounded(no)
        bulk = np.where(holds, yes.bulk, no.bulk)
        return Bounded(np.where(holds, yes.value, no.value), bulk, max(yes.count, no.count))

    @classmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> Bounded:
        if not isinstance(source, tuple | list):
            bulk = None if source._bulk is None else function(source._bulk)
            return Bounded(function(source.value), bulk, source.count)
        parts = [_bounded(x) for x in source]
        count = max(x.count for x in parts)
        return Bounded(function([x.value for x in parts]), function([x.bulk for x in parts]), count)

    def astype(self, dtype: Any) -> Bounded:
        return Bounded(self.value.astype(dtype), self._bulk, self.count)

    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> Bounded:
        if function is np.max:
            return self._largest(axis, keepdims)
        value = np.asarray(function(self.value, axis=axis, keepdims=keepdims))
        length = _alike(self.value) if value.size == 1 else self.size / max(value.size, 1)
        bulk = function(self.bulk, axis=axis, keepdims=keepdims)
        return Bounded(value, bulk, _chained(self.count, length))

    def _largest(self, axis: int | None, keepdims: bool) -> Bounded:
        """The largest is one of the numbers; a near rival's doubt may have made it so."""
        value = self.value.max(axis=axis, keepdims=keepdims)
        if self._bulk is None:
            return Bounded(value)
        largest = self.value == (value if keepdims or axis is None else np.expand_dims(value, axis))
        return Bounded(
            value, np.where(largest, self._bulk, 0.0).max(axis=axis, keepdims=keepdims), self.count
        )

    @classmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> Bounded:
        """Σ of products: each operand's doubt meets the sizes of the others."""
        args = [_bounded(x) for x in arrays]
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
            length = _alike(product([x.value for x in args], "".join(summed)))

        doubtful = [i for i, x in enumerate(args) if x._bulk is not None]
        if len(doubtful) <= 1:
            bulk = product([x.bulk for x in args])
        else:
            plain = [_size(x.value) for x in args]
            bulk = product(plain)
            for i in doubtful:
                bulk = bulk + product(
                    [np.asarray(x.doubt) if i == j else plain[j] for j, x in enumerate(args)]
                )
        return Bounded(value, bulk, _chained(max(x.count for x in args), length))


def table(value: Array, precision: Precision) -> Bounded:
    """A table that each side computes for itself, such as angles: nobody is held to more than float32's
    digits, nor excused for fewer, whatever the run's own type."""
    doubt = min(1.0, PRECISIONS["float32"].unit / precision.unit)
    return Bounded(value, (1 + doubt) * _size(value))


_COUNT: dict[np.ufunc, Callable[..., float]] = {
    np.add: lambda a, b, _: a + b,
    np.subtract: lambda a, b, _: a + b,
}


def _bounded(x: Any) -> Bounded:
    return x if isinstance(x, Bounded) else Bounded(x)


def _size(value: Array) -> Array:
    """|value|, nothing where it is infinite: −∞ is a statement, not a term."""
    size = np.abs(value)
    return size if np.isfinite(size).all() else np.where(np.isfinite(size), size, 0.0)


def _chained(first: float, then: float) -> float:
    """n for a sum of sums: the errors √n of both add up."""
    return max(first, then) if min(first, then) <= 1 else (math.sqrt(first) + math.sqrt(then)) ** 2


def _alike(terms: Array) -> float:
    """n for one cell's sum: its terms, where no two are equal. Equal terms round the same way each time they
    are added, so m of them count as m²: a uniform pattern over equal values errs by n and not by √n."""
    sizes = _size(terms).ravel()
    grid = np.floor(sizes / max(PRECISIONS["float32"].unit * float(sizes.sum()), 1e-300))
    return float((np.unique(grid[sizes > 0], return_counts=True)[1].astype(float) ** 2).sum())


# ---- Σ|terms| of a function's value: what it adds, and what the doubt of its arguments becomes


def _product(value: Array, a: Bounded, b: Bounded) -> Array:
    if a._bulk is None or b._bulk is None:
        return np.asarray(a.bulk * b.bulk)
    return np.asarray(a.bulk * b.bulk - a.doubt * b.doubt)


def _quotient(value: Array, a: Bounded, b: Bounded) -> Array:
    bulk = a.bulk / _size(b.value)
    return np.asarray(bulk if b._bulk is None else bulk + np.abs(value) * b.doubt / _size(b.value))


def _power(value: Array, x: Bounded, n: Bounded) -> Array:
    """The doubt of x counts n-fold; where x is 0, only a first power hands it on."""
    relative = np.where(x.value == 0, 0.0, x.doubt / np.where(x.value == 0, 1.0, np.abs(x.value)))
    rest = np.where((x.value == 0) & (n.value == 1), x.doubt, 0.0)
    return np.asarray(_size(value) * (1 + np.abs(n.value) * relative) + rest)


def _exponential(value: Array, x: Bounded) -> Array:
    """The argument counts as a term: exp(x) is off by u · |x| of itself where x was rounded."""
    return np.asarray(_size(value) * (1 + x.bulk))


def _turned(slope: Callable[[Array], Array]) -> Callable[..., Array]:
    """An angle is given, not computed: only its doubt counts, or at position 5,000 anything would pass."""
    return lambda value, x: np.asarray(_size(value) + np.abs(slope(x.value)) * x.doubt)


def _curve(slope: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """|y| + |f'(x)| · Σ|terms of x|."""
    return lambda value, x: np.asarray(_size(value) + np.abs(slope(x.value, value)) * x.bulk)


def _any_function(ufunc: np.ufunc) -> Callable[..., Array]:
    """A function that nobody described: each argument's slope is measured."""

    def bulk(value: Array, *args: Bounded) -> Array:
        total: Any = _size(value)
        for i, x in enumerate(args):
            step = 1e-6 * np.maximum(np.abs(x.value), 1e-3)
            near = [[y.value + sign * step * (j == i) for j, y in enumerate(args)] for sign in (-1, 1)]
            rise = np.asarray(ufunc(*near[1])).astype(float) - np.asarray(ufunc(*near[0])).astype(float)
            total = total + np.nan_to_num(np.abs(rise) / (2 * step)) * x.bulk
        return np.asarray(total)

    return bulk


_BULK: dict[str, Callable[..., Array]] = {
    "add": lambda value, a, b: a.bulk + b.bulk,
    "subtract": lambda value, a, b: a.bulk + b.bulk,
    "multiply": _product,
    "divide": _quotient,
    "power": _power,
    "exp": _exponential,
    "negative": lambda value, x: x.bulk,
    "absolute": lambda value, x: x.bulk,
    "maximum": lambda value, a, b: np.where(a.value >= b.value, a.bulk, b.bulk),
    "minimum": lambda value, a, b: np.where(a.value <= b.value, a.bulk, b.bulk),
    "sqrt": lambda value, x: _size(value) * (1 + np.where(value > 0, x.doubt / (2 * _size(x.value)), 0.0)),
    "log": _curve(lambda x, y: np.where(x > 0, 1 / x, 0.0)),
    "tanh": _curve(lambda x, y: 1 - y**2),
    "erf": _curve(lambda x, y: 2 / math.sqrt(math.pi) * np.exp(-(x**2))),
    "sin": _turned(np.cos),
    "cos": _turned(np.sin),
}
