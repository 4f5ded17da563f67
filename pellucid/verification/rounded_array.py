"""Arrays in which every operation is rounded to a type: what a program computes that never leaves 16 bits.

An operation's own forward runs on them, as on the arrays that carry a bound, so that the low-precision form
of an operation is never written a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array
from pellucid.reference.tape import Step
from pellucid.reference.tracked_array import TrackedArray, plain
from pellucid.verification.rounding import round_to

CHUNK = 16
"""How many terms a sum in 16 bits adds before it is rounded; kernels that accumulate so add a few at once."""


class RoundedArray(TrackedArray):
    """An array whose results are rounded; sums are carried in float32 and rounded once, or with `accumulates`
    rounded while they are carried."""

    def __init__(self, value: Any, type: Dtype, accumulates: bool = False) -> None:
        self.value: Array = np.asarray(value)
        self.type, self.accumulates = type, accumulates

    def _round(self, value: Any) -> RoundedArray:
        value = np.asarray(value)
        made = round_to(value, self.type) if value.dtype.kind == "f" else value
        return RoundedArray(made, self.type, self.accumulates)

    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        value = self.compute_ufunc(ufunc, inputs)
        return value if value.dtype == bool else self._round(value)

    @classmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> RoundedArray:
        kind = _first(yes, no, condition)
        return kind._round(np.where(plain(condition), plain(yes), plain(no)))

    @classmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> RoundedArray:
        if isinstance(source, tuple | list):
            kind = _first(*source)
            return RoundedArray(function([plain(x) for x in source]), kind.type, kind.accumulates)
        return RoundedArray(function(source.value), source.type, source.accumulates)

    def astype(self, dtype: Any) -> RoundedArray:
        return RoundedArray(self.value.astype(dtype), self.type, self.accumulates)

    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> RoundedArray:
        if function is np.max or not self.accumulates or axis is None:
            return self._round(function(self.value, axis=axis, keepdims=keepdims))
        total: Any = 0.0
        for start in range(0, self.shape[axis], CHUNK):
            part = np.take(self.value, range(start, min(start + CHUNK, self.shape[axis])), axis=axis)
            total = round_to(total + part.sum(axis=axis, keepdims=keepdims), self.type)
        return self._round(total / self.shape[axis] if function is np.mean else total)

    def cumsum(self) -> RoundedArray:
        return self._round(np.cumsum(self.value, axis=-1))

    @classmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> RoundedArray:
        kind, values = _first(*arrays), [plain(x) for x in arrays]
        terms, _, result = spec.partition("->")
        lengths = {
            letter: length
            for term, x in zip(terms.split(","), values, strict=True)
            for letter, length in zip(term, x.shape, strict=True)
        }
        summed = [letter for letter in lengths if letter not in result]
        if not kind.accumulates or not summed:
            return kind._round(np.einsum(spec, *values, optimize=len(values) > 1))
        along = max(summed, key=lambda letter: lengths[letter])
        total: Any = 0.0
        for start in range(0, lengths[along], CHUNK):
            parts = [
                x[tuple(slice(start, start + CHUNK) if letter == along else slice(None) for letter in term)]
                for term, x in zip(terms.split(","), values, strict=True)
            ]
            total = round_to(total + np.einsum(spec, *parts, optimize=len(parts) > 1), kind.type)
        return kind._round(total)


def _first(*arrays: Any) -> RoundedArray:
    return next(x for x in arrays if isinstance(x, RoundedArray))


def compute_rounded(step: Step, inputs: Sequence[Array], dtype: Dtype, accumulates: bool = False) -> Array:
    """Returns a step in which every operation is rounded to the type."""
    held = [RoundedArray(x, dtype, accumulates) if x.dtype.kind == "f" else x for x in inputs]
    return np.asarray(plain(step.op.forward(*held, **step.attrs)))
