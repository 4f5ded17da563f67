"""Quantized weights: small integers, with a scale (and a minimum) for each group of a row.

    W[o, i] = scales[o, g] · integers[o, i] + minimums[o, g],    g = ⌊i / group⌋

Without minimums the integers are signed, −2^(bits−1) … 2^(bits−1) − 1; with them they count from 0 to
2^bits − 1. Scales and minimums are float16, as in GGUF's blocks of 32, so each of these weights can be
written to a GGUF file exactly where its rows fill whole blocks.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError, unknown

NEVER_QUANTIZED = ("positions.weight", "position_bias.weight")
"""Matrices that are added and never multiplied: small tables of positions."""
BLOCK = 32
"""Numbers of a block in GGUF; a group is a multiple of it, or a whole row."""


@dataclass(frozen=True)
class Scheme:
    """How a matrix is quantized: `bits` of each integer, and the inputs that share a scale, None for a whole
    row (per output channel). 8 bits are symmetric, q = x / s; 4 bits have a minimum, q = (x − m) / s."""

    bits: int
    group: int | None = None

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise UsageError(f"weights are quantized to 8 or 4 bits, not {self.bits}.")
        if self.group is not None and (self.group < BLOCK or self.group % BLOCK):
            raise UsageError(f"group is a multiple of {BLOCK}, not {self.group}.")

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Returns int8 (one scale for each output channel) or int4 (groups of 32)."""
        if name not in SCHEMES:
            raise UsageError(unknown("weights", name, SCHEMES))
        return cls(*SCHEMES[name])

    def __str__(self) -> str:
        return f"int{self.bits}, " + ("per channel" if self.group is None else f"groups of {self.group}")


SCHEMES: dict[str, tuple[int, int | None]] = {"int8": (8, None), "int4": (4, BLOCK)}
"""Bits and group of the schemes that have a name."""


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A matrix [out in] of small integers: int8 [out in], scales and minimums float16 [out groups].

    It stands where an array of floats would: `np.asarray` dequantizes it.
    """

    integers: Array
    scales: Array
    minimums: Array | None
    group: int
    bits: int

    def __post_init__(self) -> None:
        groups = (self.integers.shape[0], -(-self.integers.shape[1] // self.group))
        parts = [self.scales] if self.minimums is None else [self.scales, self.minimums]
        if self.integers.dtype != np.int8 or any(part.shape != groups for part in parts):
            got = [part.shape for part in parts]
            raise UsageError(
                f"a quantized weight of shape {self.integers.shape} in groups of {self.group} has int8 "
                f"integers and scales {groups}; got {self.integers.dtype} and {got}."
            )

    def __repr__(self) -> str:
        minimums = "" if self.minimums is None else ", minimums"
        return f"<QuantizedWeight {list(self.shape)}: int{self.bits}, group={self.group}{minimums}>"

    @property
    def shape(self) -> tuple[int, ...]:
        out, width = self.integers.shape
        return out, width

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type after dequantizing."""
        return np.dtype(np.float32)

    @property
    def size(self) -> int:
        return self.integers.size

    @property
    def nbytes(self) -> int:
        """Bytes as stored: the bits of the integers, packed, and two for each scale and minimum."""
        per_group = 2 if self.minimums is None else 4
        return self.integers.size * self.bits // 8 + per_group * self.scales.size

    def dequantize(self, dtype: Any = np.float32) -> Array:
        """Returns scale · integer (+ minimum), [out in], computed in this type."""
        out, width = self.shape
        numbers: Array = np.zeros((out, self.scales.shape[1], self.group), dtype)
        flat = numbers.reshape(out, -1)
        flat[:, :width] = self.integers
        with np.errstate(all="ignore"):  # a scale of a file may be Inf or NaN; then so are its weights
            numbers *= self.scales.astype(dtype)[..., None]
            if self.minimums is not None:
                numbers += self.minimums.astype(dtype)[..., None]
        return np.ascontiguousarray(flat[:, :width])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.dequantize(np.float32 if dtype is None else dtype)

    def equals(self, other: Self) -> bool:
        """Returns whether integers, scales and minimums are the same, bit for bit."""
        if (self.group, self.bits) != (other.group, other.bits):
            return False
        ours, theirs = self.parts(), other.parts()
        return ours.keys() == theirs.keys() and all(
            part.shape == theirs[name].shape and part.tobytes() == theirs[name].tobytes()
            for name, part in ours.items()
        )

    def parts(self) -> dict[str, Array]:
        """Returns the arrays by name: integers, scales and, where there are any, minimums."""
        parts = {"integers": self.integers, "scales": self.scales}
        return parts if self.minimums is None else parts | {"minimums": self.minimums}

    def rows(self, begin: int, end: int) -> Self:
        """Returns the weight of some outputs."""
        return self.take(slice(begin, end))

    def take(self, rows: slice | Array, width: int | None = None) -> Self:
        """Returns the weight of these outputs, in this order, and of the first inputs: nothing is rounded."""
        integers = self.integers[rows, :width]
        groups = -(-integers.shape[1] // self.group)
        minimums = None if self.minimums is None else self.minimums[rows, :groups]
        return type(self)(integers, self.scales[rows, :groups], minimums, self.group, self.bits)

    def __getitem__(self, index: Any) -> "Self | Array":
        """Returns the weight of some rows and first columns, given as slices; of other indices, numbers."""
        match index:
            case slice():
                return self.take(index)
            case (slice() as rows, slice(start=None | 0, step=None | 1) as columns):
                return self.take(rows, columns.stop)
        numbers: Array = self.dequantize()[index]
        return numbers


def is_quantizable(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a parameter may be quantized: it is a matrix, and not a table of positions."""
    return len(shape) == 2 and name not in NEVER_QUANTIZED


def quantize(weight: Array, scheme: Scheme) -> QuantizedWeight:
    """Returns a matrix [out in] quantized: every number becomes the nearest of its group's levels.

    8 bits: s = max|x| / 127, q = x / s; 4 bits: m = min x, s = (max x − m) / 15, q = (x − m) / s. The
    integers are rounded with the scales as they are stored, in float16.
    """
    out, width = weight.shape
    group = width if scheme.group is None else min(scheme.group, width)
    padded = np.pad(np.asarray(weight, np.float32), ((0, 0), (0, -width % group)), mode="edge")
    grouped = padded.reshape(out, -1, group)
    if not np.isfinite(grouped).all():
        raise UsageError("a weight with NaN or Inf cannot be quantized.")
    minimums: Array | None = None
    if scheme.bits == 8:
        scales = _to_float16(np.abs(grouped).max(-1) / np.float32(127))
        lowest, highest, shifted = -127, 127, grouped
    else:
        minimums = _to_float16(grouped.min(-1))
        scales = _to_float16((grouped.max(-1) - minimums.astype(np.float32)) / np.float32(15))
        lowest, highest, shifted = 0, 15, grouped - minimums.astype(np.float32)[..., None]
    divisor = np.where(scales == 0, np.float32(1), scales.astype(np.float32))[..., None]
    integers = np.clip(np.rint(shifted / divisor), lowest, highest).astype(np.int8)
    return QuantizedWeight(
        np.ascontiguousarray(integers.reshape(out, -1)[:, :width]), scales, minimums, group, scheme.bits
    )


def _to_float16(numbers: Array) -> Array:
    """Returns the numbers in float16; raises where one is beyond its range."""
    with np.errstate(over="ignore"):
        rounded: Array = numbers.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise UsageError(
            f"the scale {np.abs(numbers).max():g} of a group is beyond float16: keep this weight."
        )
    return rounded
