"""Arrays that remember how they were made.

An operation's own forward, run on such arrays, computes as fast as NumPy does and leaves behind the
arithmetic of every cell, told only when asked. So an explanation is never a second implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pellucid.explain.expression import Apply, Cell, Chosen, Expression, Number, Sum
from pellucid.reference.op import Array, Box, Index

Story = Callable[[Index, int], Expression]
"""The arithmetic of one cell, showing so many terms of a long sum."""


class Remembering(np.lib.mixins.NDArrayOperatorsMixin):
    """An array and the story of its cells."""

    def __init__(self, value: Any, story: Story) -> None:
        self.value: Array = np.asarray(value)
        self.story = story

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    dtype = property(lambda self: self.value.dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        value = np.asarray(ufunc(*map(_value, inputs)))
        if value.dtype == object:  # a function of the standard library, applied entry by entry
            value = value.astype(self.dtype)
        name = ufunc.__name__.partition(" ")[0]

        def story(index: Index, top: int) -> Expression:
            args = tuple(_at(x, index, top) for x in inputs)
            return Apply(name, args, float(value[index]))

        return Remembering(value, story)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.einsum:
            return _einsum(*args)
        if function is np.where:
            return _where(*args)
        if function in _MOVES:
            return _moved(lambda *arrays: function(*arrays, *args[1:], **kwargs), args[0])
        return NotImplemented

    def __getitem__(self, key: Any) -> Remembering:
        return _moved(lambda array: array[key], self)

    def astype(self, dtype: Any) -> Remembering:
        return Remembering(self.value.astype(dtype), self.story)

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Remembering:
        return self._reduced(np.sum, axis, keepdims, lambda terms, top, value: _total(terms, top))

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Remembering:
        def story(terms: Terms, top: int, value: float) -> Expression:
            return Apply("divide", (_total(terms, top), Number(terms.values.size)), value)

        return self._reduced(np.mean, axis, keepdims, story)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Remembering:
        def story(terms: Terms, top: int, value: float) -> Expression:
            largest = np.argsort(-terms.values, kind="stable")[:top]
            return Apply("max", tuple(terms.told(int(i), top) for i in largest), value)

        return self._reduced(np.max, axis, keepdims, story)

    def _reduced(
        self,
        function: Any,
        axis: int | None,
        keepdims: bool,
        tell: Callable[[Terms, int, float], Expression],
    ) -> Remembering:
        value = np.asarray(function(self.value, axis=axis, keepdims=keepdims))
        numbers = np.arange(self.size).reshape(self.shape)

        def story(index: Index, top: int) -> Expression:
            if axis is None:
                read = numbers.ravel()
            else:
                at = index[:-1] if keepdims else index
                read = np.moveaxis(numbers, axis, -1)[at]

            def told(i: int, top: int) -> Expression:
                return self.story(_ints(np.unravel_index(read[i], self.shape)), top)

            return tell(Terms(self.value.ravel()[read], told), top, float(value[index]))

        return Remembering(value, story)


class Terms:
    """The numbers that a reduction reads, each with its story."""

    def __init__(self, values: Array, told: Callable[[int, int], Expression]) -> None:
        self.values, self.told = values, told


_MOVES = {np.reshape, np.broadcast_to, np.concatenate, np.take_along_axis}


def remember(name: str, value: Array, box: Box) -> Any:
    """A part of a named value that remembers its cells; whole numbers only select, and stay plain."""
    part = value[np.ix_(*box)] if box else value
    if part.dtype.kind != "f":
        return part

    def story(index: Index, top: int) -> Expression:
        cell = tuple(int(axis[i]) for axis, i in zip(box, index, strict=True))
        return Cell(name, cell, float(part[index]))

    return Remembering(part, story)


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Remembering) else x


def _ints(index: Sequence[Any]) -> Index:
    return tuple(int(i) for i in index)


def _at(x: Any, index: Index, top: int) -> Expression:
    """The story of the cell of x that broadcasting puts under this index."""
    shape = np.shape(_value(x))
    aligned = index[len(index) - len(shape) :]
    cell = tuple(0 if size == 1 else i for i, size in zip(aligned, shape, strict=True))
    return x.story(cell, top) if isinstance(x, Remembering) else Number(float(np.asarray(x)[cell]))


def _moved(function: Callable[..., Array], source: Any) -> Remembering:
    """A rearrangement: the same done to the cells' numbers tells where each came from."""
    sources: list[Remembering] = list(source) if isinstance(source, tuple | list) else [source]
    starts = np.cumsum([0, *(x.size for x in sources)])

    def apply(arrays: list[Array]) -> Array:
        return np.asarray(function(arrays if isinstance(source, tuple | list) else arrays[0]))

    def story(index: Index, top: int) -> Expression:
        numbers = [
            np.arange(x.size).reshape(x.shape) + start for x, start in zip(sources, starts, strict=False)
        ]
        number = int(apply(numbers)[index])
        which = int(np.searchsorted(starts, number, side="right")) - 1
        origin = sources[which]
        return origin.story(_ints(np.unravel_index(number - starts[which], origin.shape)), top)

    return Remembering(apply([x.value for x in sources]), story)


def _where(condition: Any, yes: Any, no: Any) -> Remembering:
    chosen = np.asarray(_value(condition)).astype(bool)
    value = np.where(chosen, _value(yes), _value(no))

    def story(index: Index, top: int) -> Expression:
        holds = np.broadcast_to(chosen, value.shape)[index]
        what = _at(yes if holds else no, index, top)
        return Chosen(what, _at(condition, index, top), float(value[index]))

    return Remembering(value, story)


def _einsum(spec: str, *arrays: Any) -> Remembering:
    values = [_value(x) for x in arrays]
    value = np.asarray(np.einsum(spec, *values, optimize=len(values) > 1))
    left, _, result = spec.partition("->")
    terms = left.split(",")
    summed = "".join(sorted(set(left) - set(result) - {","}))

    def story(index: Index, top: int) -> Expression:
        fixed = dict(zip(result, index, strict=True))
        slices = [x[tuple(fixed.get(i, slice(None)) for i in t)] for x, t in zip(values, terms, strict=True)]
        free = ["".join(i for i in t if i in summed) for t in terms]
        products = np.asarray(np.einsum(f"{','.join(free)}->{summed}", *slices))

        def told(number: int, top: int) -> Expression:
            at = fixed | dict(zip(summed, _ints(np.unravel_index(number, products.shape)), strict=True))
            cells = [_at(x, tuple(at[i] for i in t), top) for x, t in zip(arrays, terms, strict=True)]
            # as they stand in the formula: the operation hands its operands over last to first
            factors = tuple(cell for cell in reversed(cells) if cell != Number(1.0))
            return factors[0] if len(factors) == 1 else Apply("multiply", factors, products.flat[number])

        if not summed:
            return told(0, top)
        # A product with a plain 0 was never a term: scatter's rows that other tokens took.
        plain = [
            np.broadcast_to(_spread(s, f, summed), products.shape) != 0
            for s, f, x in zip(slices, free, arrays, strict=True)
            if not isinstance(x, Remembering)
        ]
        kept = np.flatnonzero(np.logical_and.reduce(plain)) if plain else np.arange(products.size)
        return _total(Terms(products.ravel()[kept], lambda i, k: told(int(kept[i]), k)), top)

    return Remembering(value, story)


def _spread(array: Array, letters: str, over: str) -> Array:
    """An array of some letters, with axes of length 1 for the letters it lacks."""
    ordered = np.einsum(f"{letters}->{''.join(i for i in over if i in letters)}", array)
    return np.expand_dims(ordered, tuple(a for a, i in enumerate(over) if i not in letters))


def _total(terms: Terms, top: int) -> Expression:
    """The sum of the terms: all where they are few, else the largest and the exact rest."""
    values, count = terms.values, terms.values.size
    total = float(values.sum())
    if count == 1:
        return terms.told(0, top)
    if count <= top:
        return Sum(tuple(terms.told(i, top) for i in range(count)), 0.0, 0, total)
    largest = np.sort(np.argpartition(-np.abs(values), top - 1)[:top])
    others = np.ones(count, dtype=bool)
    others[largest] = False
    shown = tuple(terms.told(int(i), top) for i in largest)
    return Sum(shown, float(values[others].sum()), count - len(shown), total)
