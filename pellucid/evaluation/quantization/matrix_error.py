"""How far a quantized matrix is from the matrix itself.

relative error = ‖Ŵ − W‖ / ‖W‖,    largest error = max |Ŵ − W| / scale

An ideally rounded number is at most half a scale away; the error of a scale that is stored in float16 adds to
it.
"""

from dataclasses import dataclass

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.quantized import QuantizedWeight

ROWS = 1 << 20
"""Numbers of a matrix that are compared at once, in float64."""
SMALLEST_SCALE = 2.0**-24
"""The smallest positive float16: the unit of the error of a group whose scale was rounded to 0."""


@dataclass(frozen=True)
class MatrixError:
    """The bytes and the error of one matrix [out in]."""

    name: str
    shape: tuple[int, ...]
    type: str
    """`int8, per channel`, or the type of its file."""
    bytes: int
    """As stored."""
    relative_error: float
    largest_error: float | None
    """In units of the scale; None where the matrix has no scales."""

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.bytes / int(np.prod(self.shape))


def measure_matrix(
    name: str, weight: Array, quantized: QuantizedWeight | Array, type: str, size: int
) -> MatrixError:
    """Returns the error of a matrix, with its type and its `size` in bytes as stored."""
    out, width = weight.shape
    squares = error_squares = largest = 0.0
    has_scales = isinstance(quantized, QuantizedWeight)
    rows = max(ROWS // width, 1)
    for begin in range(0, out, rows):
        part = slice(begin, min(begin + rows, out))
        exact = np.asarray(weight[part], np.float64)
        if isinstance(quantized, QuantizedWeight):
            some = quantized.rows(part.start, part.stop)
            errors = np.abs(np.asarray(some, np.float32) - exact)
            units = np.maximum(np.abs(some.scales.astype(np.float64)), SMALLEST_SCALE)
            largest = max(largest, float((errors / np.repeat(units, some.group, 1)[:, :width]).max()))
        else:
            errors = np.abs(np.asarray(quantized[part], np.float64) - exact)
        squares += float((exact**2).sum())
        error_squares += float((errors**2).sum())
    relative = np.sqrt(error_squares / squares) if squares else float(error_squares > 0)
    return MatrixError(name, (out, width), type, size, float(relative), largest if has_scales else None)
