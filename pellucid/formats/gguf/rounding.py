"""The weights of a model as a GGUF file would hold them, without writing one: quantized, and dequantized."""

from collections.abc import Mapping

import numpy as np

from pellucid.base.errors import UsageError, unknown
from pellucid.formats.gguf.quants import BY_NAME, TYPES, Array, dequantize, quantize
from pellucid.formats.pretrained import LazyWeights, Shape

KINDS = tuple(type.name for type in TYPES if type.encode is not None)
"""The types to which weights can be rounded."""
UNCHANGED = ("positions.weight",)
"""Matrices that a file never quantizes: the table of learned positions."""


def check_kind(kind: str) -> str:
    """Returns the name of a type that weights can be rounded to, given in either case."""
    if kind.upper() not in KINDS:
        raise UsageError(unknown("the type to quantize to", kind, KINDS))
    return kind.upper()


def round_weights(shapes: Mapping[str, Shape], weights: Mapping[str, Array], kind: str) -> LazyWeights:
    """Returns the weights rounded to a type when they are read: matrices whose rows fill whole blocks; other
    matrices are F16; vectors and learned positions are unchanged, as in a file."""

    def read(name: str) -> Array:
        array = np.asarray(weights[name])
        if array.ndim == 1 or name in UNCHANGED:
            return array
        type = BY_NAME[kind if array.shape[-1] % BY_NAME[kind].size == 0 else "F16"]
        numbers = np.ascontiguousarray(array, dtype=np.float32)
        data = b"".join(quantize(type, numbers, name))
        return dequantize(type, memoryview(data)).reshape(array.shape)

    return LazyWeights.from_function(shapes, read)
