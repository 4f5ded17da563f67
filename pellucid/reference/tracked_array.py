"""The base class of NumPy array-likes that carry more than their values through an operation's forward.

An operation's forward runs unchanged on such arrays, so what they carry (the expression of each cell, a bound
of its rounding error) is never a second implementation. NumPy dispatches its calls to this class; a subclass
defines what each of them does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from pellucid.reference.op import Array

_REARRANGEMENTS = {np.reshape, np.broadcast_to, np.concatenate, np.take_along_axis}


class TrackedArray(np.lib.mixins.NDArrayOperatorsMixin, ABC):
    """An array that takes part in NumPy's arithmetic; `value` is the plain array."""

    value: Array

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    dtype = property(lambda self: self.value.dtype)

    # ---- what a subclass defines

    @abstractmethod
    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """Returns the result of a function applied entry by entry; `compute_ufunc` gives its plain value."""

    @classmethod
    @abstractmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> Self:
        """Returns Σ of products by the letters of `spec`."""

    @classmethod
    @abstractmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> Self:
        """Returns `yes` where the condition holds and `no` elsewhere."""

    @classmethod
    @abstractmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> Self:
        """Returns the entries of one array (or of a list of them) in another arrangement."""

    @abstractmethod
    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> Self:
        """Returns the sum, mean or maximum (`np.sum`, `np.mean`, `np.max`) along an axis."""

    @abstractmethod
    def cumsum(self) -> Self:
        """Returns the cumulative sums along the last axis."""

    @abstractmethod
    def astype(self, dtype: Any) -> Self:
        """Returns the same with its values in another dtype."""

    # ---- what NumPy calls

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return NotImplemented if method != "__call__" or kwargs else self.apply_ufunc(ufunc, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.einsum:
            return self.apply_einsum(*args)
        if function is np.where:
            return self.apply_where(*args)
        if function is np.cumsum and kwargs == {"axis": -1}:
            return self.cumsum()
        if function in _REARRANGEMENTS:
            return self.rearrange(lambda array: function(array, *args[1:], **kwargs), args[0])
        return NotImplemented

    def __getitem__(self, key: Any) -> Self:
        return self.rearrange(lambda array: array[key], self)

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Self:
        return self.reduce(np.sum, axis, keepdims)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Self:
        return self.reduce(np.mean, axis, keepdims)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Self:
        return self.reduce(np.max, axis, keepdims)

    def compute_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Array:
        """Returns the plain value of a function applied entry by entry."""
        value = np.asarray(ufunc(*map(plain, inputs)))
        # a function of the standard library, applied entry by entry, gives objects
        return value.astype(self.dtype) if value.dtype == object else value


def plain(x: Any) -> Any:
    """Returns the plain array behind a tracked one, or what is given."""
    return x.value if isinstance(x, TrackedArray) else x


def ufunc_name(ufunc: np.ufunc) -> str:
    """Returns NumPy's name; of `np.frompyfunc(math.erf, …)`, the function's own."""
    return ufunc.__name__.partition(" ")[0]
