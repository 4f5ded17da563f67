"""Types of numbers: one table of names, sizes and rounding, and conversion between bits and values.

A type has two names: PyTorch's ("bfloat16") and the code of safetensors and GGUF ("BF16"). NumPy has no
bfloat16, so its bits are held as uint16. Importing this file does not import torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.errors import ConfigError, UsageError, unknown

Array = np.ndarray[Any, np.dtype[Any]]

OTHER_MACHINE = 1e-12
"""The tolerance of a replay on another machine: `exp` differs between processors in the last place."""


@dataclass(frozen=True)
class Dtype:
    """One type: its names in PyTorch and in files, and how NumPy holds its bits."""

    name: str
    code: str
    storage: np.dtype[Any]
    roundoff: float = 0.0
    """The unit round-off u: rounding to the nearest changes x by at most u |x|. 0 for integers."""
    smallest_normal: float = 0.0
    """The smallest positive number that has all of the type's significant bits."""
    largest: float = 0.0
    """The largest finite number."""

    @property
    def bytes(self) -> int:
        return self.storage.itemsize


FLOATS = (
    Dtype("float64", "F64", np.dtype("<f8"), 2.0**-53, 2.0**-1022, 2.0**1023 * (2 - 2.0**-52)),
    Dtype("float32", "F32", np.dtype("<f4"), 2.0**-24, 2.0**-126, 2.0**127 * (2 - 2.0**-23)),
    Dtype("float16", "F16", np.dtype("<f2"), 2.0**-11, 2.0**-14, 65504.0),
    Dtype("bfloat16", "BF16", np.dtype("<u2"), 2.0**-8, 2.0**-126, 2.0**127 * (2 - 2.0**-7)),
)
INTEGERS = (
    Dtype("int64", "I64", np.dtype("<i8")),
    Dtype("int32", "I32", np.dtype("<i4")),
    Dtype("int16", "I16", np.dtype("<i2")),
    Dtype("int8", "I8", np.dtype("i1")),
    Dtype("uint8", "U8", np.dtype("u1")),
    Dtype("bool", "BOOL", np.dtype("?")),
)
"""Types that no weight has; counters and RNG states have them."""
BY_NAME = {dtype.name: dtype for dtype in (*FLOATS, *INTEGERS)}
BY_CODE = {dtype.code: dtype for dtype in (*FLOATS, *INTEGERS)}
FLOAT_NAMES = tuple(dtype.name for dtype in FLOATS)
FLOAT_STORAGE = {dtype.code: dtype.storage for dtype in FLOATS}
"""How NumPy holds the bits of each type that a weight may have, by code."""
STORAGE = {code: dtype.storage for code, dtype in BY_CODE.items()}
CACHE_NAMES = (*FLOAT_NAMES, "int8")
"""Types in which keys and values may be cached."""
BLOCK = 1 << 18


def dtype_name(dtype: Any) -> str:
    """Returns PyTorch's name of a dtype.

    >>> dtype_name("torch.bfloat16")
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def check_dtype(given: Any, names: Sequence[str] = FLOAT_NAMES, parameter: str = "dtype") -> str:
    """Returns the name of a dtype, given by name or as a `torch.dtype`, if it is one of `names`."""
    name = dtype_name(given) if type(given).__name__ in ("str", "dtype") else given
    if not isinstance(name, str) or name not in names:
        raise ConfigError(unknown(parameter, name, names))
    return name


def dtype_code(name: str | None) -> str | None:
    """Returns the code of a float type that is given by its name or its code; None stays None.

    >>> dtype_code("bfloat16"), dtype_code("BF16")
    ('BF16', 'BF16')
    """
    if name is None or name in FLOAT_STORAGE:
        return name
    if name not in FLOAT_NAMES:
        raise UsageError(unknown("dtype", name, [*FLOAT_NAMES, *FLOAT_STORAGE]))
    return BY_NAME[name].code


def promote(codes: Iterable[str]) -> str:
    """Returns the code of the narrowest float type that holds every number of the given types exactly.

    >>> promote(["F16", "BF16"])
    'F32'
    """
    found = set(codes)
    if len(found) == 1:
        return found.pop()
    return "F64" if "F64" in found else "F32"


def decode(bits: Array, code: str) -> Array:
    """Returns the numbers that the bits mean: F16 and BF16 as float32, which holds each of theirs exactly."""
    if code == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32) if code == "F16" else bits


def encode(array: Array, code: str, exact: bool = False) -> Array:
    """Returns the bits of the numbers, each rounded to the nearest of the type, ties to even.

    Raises UsageError where a number overflows the type, or, if it must be exact, is not one of the type's.
    """
    if array.dtype == STORAGE[code]:
        return array
    bits, flat = np.empty(array.shape, STORAGE[code]), np.asarray(array, order="C").reshape(-1)
    for start in range(0, array.size, BLOCK):  # so that a large weight is not held several times over
        part = slice(start, start + BLOCK)
        bits.reshape(-1)[part] = _encode_block(flat[part], code, exact)
    return bits


def _encode_block(array: Array, code: str, exact: bool) -> Array:
    with np.errstate(over="ignore"):
        bits = _to_bfloat16(array) if code == "BF16" else array.astype(STORAGE[code])
    back = decode(bits, code)
    if not np.array_equal(np.isfinite(back), np.isfinite(array)):
        raise UsageError(f"it has numbers beyond the largest of {code}")
    if exact and not np.array_equal(back, array, equal_nan=True):
        raise UsageError(f"its numbers are no longer {code}, as they were in their file")
    return bits


def _to_bfloat16(array: Array) -> Array:
    """Returns the upper half of float32, rounded: adding half of the last bit kept carries into it."""
    single = array.astype(np.float32, copy=False) if array.dtype != np.float64 else round_to_odd(array)
    bits = single.view(np.uint32)
    upper = bits >> 16
    rounded = (bits + 0x7FFF + (upper & 1)) >> 16
    nan = np.where(upper & 0x7F, upper, upper | 0x40)  # a NaN must not become an infinity
    return np.asarray(np.where(np.isnan(single), nan, rounded), STORAGE["BF16"])


def round_to_odd(array: Array) -> Array:
    """Returns float64 as float32, truncated and with the last bit set where bits were lost: rounding it again
    then rounds once."""
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    bits = single.view(np.uint32)
    bits -= (np.abs(single.astype(np.float64)) > np.abs(array)).astype(np.uint32)
    bits |= (single.astype(np.float64) != array) & ~np.isnan(array)
    return single
