"""The types of numbers in files: their names, their bits, and what rounding to each of them does."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pellucid.errors import UsageError, did_you_mean
from pellucid.pretrained import Array, Pretrained

TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
BITS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
"""How the numbers of each type lie in a file; NumPy has no bfloat16, so its bits are whole numbers."""
WHOLE: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""Types that no weight has; counters and dice have them."""
BLOCK = 1 << 18


def number_type(name: str | None) -> str | None:
    """The type of a name such as bfloat16 or BF16; None stays None."""
    if name is None or name in TORCH_NAMES:
        return name
    found = {torch_name: type for type, torch_name in TORCH_NAMES.items()}.get(name)
    if found is None:
        known = [*TORCH_NAMES.values(), *TORCH_NAMES]
        raise UsageError(f"no type called {name!r}; have {', '.join(known)}.{did_you_mean(name, known)}")
    return found


def type_of(pretrained: Pretrained, name: str) -> str:
    """How a weight was stored: float32 where it was quantised, the array's own type where it is new."""
    stored = pretrained.source.types.get(name)
    if stored is None:
        own = str(pretrained.weights[name].dtype)
        return next((type for type, torch_name in TORCH_NAMES.items() if torch_name == own), "F32")
    return stored if stored in TORCH_NAMES else "F32"


def widest(types: Iterable[str]) -> str:
    """The narrowest type that holds all of them exactly.

    >>> widest(["F16", "BF16"])
    'F32'
    """
    found = set(types)
    if len(found) == 1:
        return found.pop()
    return "F64" if "F64" in found else "F32"


def widened(bits: Array, type: str) -> Array:
    """The numbers that the bits mean: F16 and BF16 as float32, which holds each of theirs exactly."""
    if type == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32) if type == "F16" else bits


def narrowed(array: Array, type: str, exact: bool = False) -> Array:
    """The bits of some numbers, each rounded to the nearest of the type (of two, the even one).

    Raises UsageError where a number is beyond the type, or, if it must be exact, is not one of the type's.
    """
    if array.dtype == BITS[type]:
        return array
    made, given = np.empty(array.shape, BITS[type]), np.asarray(array, order="C").reshape(-1)
    for start in range(0, array.size, BLOCK):  # so that a large weight is not held several times over
        part = slice(start, start + BLOCK)
        made.reshape(-1)[part] = _narrowed(given[part], type, exact)
    return made


def _narrowed(array: Array, type: str, exact: bool) -> Array:
    with np.errstate(over="ignore"):
        bits = _to_bfloat16(array) if type == "BF16" else array.astype(BITS[type])
    back = widened(bits, type)
    if not np.array_equal(np.isfinite(back), np.isfinite(array)):
        raise UsageError(f"it has numbers beyond the largest of {type}")
    if exact and not np.array_equal(back, array, equal_nan=True):
        raise UsageError(f"its numbers are no longer {type}, as they were in their file")
    return bits


def _to_bfloat16(array: Array) -> Array:
    """The upper half of float32, rounded: adding half of the last place kept carries into it where due."""
    single = array.astype(np.float32, copy=False) if array.dtype != np.float64 else _odd(array)
    bits = single.view(np.uint32)
    upper = bits >> 16
    rounded = (bits + 0x7FFF + (upper & 1)) >> 16
    nan = np.where(upper & 0x7F, upper, upper | 0x40)  # a NaN must not become an infinity
    return np.asarray(np.where(np.isnan(single), nan, rounded), BITS["BF16"])


def _odd(array: Array) -> Array:
    """float32 cut off, its last bit set where something was lost, so that rounding it again rounds once."""
    single = array.astype(np.float32)
    bits = single.view(np.uint32)
    bits -= (np.abs(single.astype(np.float64)) > np.abs(array)).astype(np.uint32)
    bits |= (single.astype(np.float64) != array) & ~np.isnan(array)
    return single
