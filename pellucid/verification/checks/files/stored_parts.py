"""The integers, scales and minimums of quantized weights, read a second time and apart from `interop`.

A file that holds them is read byte by byte; of a file that holds floats, they are what the operations of the
specification make of these.
"""

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.quantized import QuantizedWeight
from pellucid.reference.op import Array
from pellucid.reference.ops.quantization import dequantize, quantize

Parts = dict[str, Array]
"""int8 integers [out in], float16 scales and perhaps minimums [out groups]."""
BLOCK = 32


class BlockLayout(NamedTuple):
    """A block of 32 integers: a float16 scale, a minimum or none, fifth bits or none, and the integers."""

    bits: int
    has_minimum: bool


BLOCKS = {
    2: BlockLayout(4, False),
    3: BlockLayout(4, True),
    6: BlockLayout(5, False),
    7: BlockLayout(5, True),
    8: BlockLayout(8, False),
}
"""By the number of the GGUF type: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0."""


def split_blocks(rows: Array, type: int) -> Parts:
    """Returns the parts of a matrix from its bytes [out, bytes of a row], for a type of `BLOCKS`."""
    bits, has_minimum = BLOCKS[type]
    size = 2 + 2 * has_minimum + 4 * (bits == 5) + BLOCK * (8 if bits == 8 else 4) // 8
    blocks = np.ascontiguousarray(rows).reshape(len(rows), -1, size)
    parts, at = {"scales": _view(blocks, 0, "<f2")}, 2
    if has_minimum:
        parts["minimums"], at = _view(blocks, at, "<f2"), at + 2
    integers = np.empty((*blocks.shape[:2], BLOCK), np.int16)
    if bits == 8:
        integers[:] = blocks[..., at:].view(np.int8)
    else:
        fifth = _view(blocks, at, "<u4") if bits == 5 else np.zeros(blocks.shape[:2], np.uint32)
        halves = blocks[..., at + 4 * (bits == 5) :]
        for i in range(BLOCK):  # the first 16 in the low halves of the bytes, the others in the high halves
            byte = halves[..., i % 16].astype(np.int16)
            integers[..., i] = (byte % 16 if i < 16 else byte // 16) + 16 * (fifth >> i & 1).astype(np.int16)
        integers -= 0 if has_minimum else 2 ** (bits - 1)
    return parts | {"integers": integers.reshape(len(rows), -1).astype(np.int8)}


def _view(blocks: Array, at: int, type: str) -> Array:
    """Returns one number of each block."""
    return np.ascontiguousarray(blocks[..., at : at + np.dtype(type).itemsize]).view(type)[..., 0]


# ---- our folder


def read_schemes(folder: Path) -> Callable[[str], Mapping[str, Any] | None]:
    """Returns a function from the name of a weight to the scheme that a folder of ours states for it."""
    table = json.loads((folder / "config.json").read_text("utf-8")).get("quantization", {})
    return lambda name: next((scheme for key, scheme in table.items() if fnmatchcase(name, key)), None)


def read_stored(tensor: Callable[[str], Any], name: str, bits: int, has_minimums: bool, width: int) -> Parts:
    """Returns the parts of a weight from the tensors of a folder of ours, in which two integers of 4 bits are
    one byte: the first in its low half, q + 8 where there are no minimums."""
    kinds = ("integers", "scales", *["minimums"] * has_minimums)
    parts = {kind: np.asarray(tensor(f"{name}.{kind}").numpy()) for kind in kinds}
    if bits == 4:
        bytes = parts["integers"].astype(np.int16)
        columns = np.arange(width)
        integers = np.where(columns % 2, bytes[:, columns // 2] // 16, bytes[:, columns // 2] % 16)
        parts["integers"] = (integers - (0 if has_minimums else 8)).astype(np.int8)
    return parts


# ---- floats


def widen_parts(parts: Parts, group: int) -> Array:
    """Returns the numbers, float32."""
    scales = [parts[kind].astype(np.float32) for kind in ("scales", "minimums") if kind in parts]
    return np.asarray(dequantize.forward(parts["integers"], *scales, group=group))


def quantize_again(numbers: Array, weight: QuantizedWeight) -> Parts:
    """Returns the parts of the float32 numbers of some rows in the scheme of a weight.

    8 bits: s = max|x| / 127; 4 bits: m = min x, s = (max x − m) / 15; both as float16.
    """
    x, starts = np.asarray(numbers, np.float32), np.arange(0, numbers.shape[1], weight.group)
    if weight.minimums is None:
        largest = np.maximum.reduceat(np.abs(x), starts, axis=1)
        parts = {"scales": (largest / np.float32(127)).astype(np.float16)}
        low, high = -127, 127
    else:
        least, most = (of.reduceat(x, starts, axis=1) for of in (np.minimum, np.maximum))
        minimums = least.astype(np.float16)
        scales = ((most - minimums.astype(np.float32)) / np.float32(15)).astype(np.float16)
        parts, low, high = {"scales": scales, "minimums": minimums}, 0, 15
    given = [part.astype(np.float32) for part in parts.values()]
    integers = quantize.forward(x, *given, group=weight.group, low=low, high=high)
    return parts | {"integers": np.asarray(integers)}
