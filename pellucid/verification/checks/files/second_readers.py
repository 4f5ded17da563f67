"""The second readers of files, apart from `formats`, so that each checks the other: of the header of a GGUF
file, where the bytes of each tensor are, and which bytes of the metadata belong to which key; and of the
integers, scales and minimums of quantized weights, byte by byte, or of a file that holds floats, by what the
operations of the specification make of these.

An excerpt is a file with the first blocks of another, perhaps without its vocabulary, and perhaps with its
numbers dequantized by the `gguf` package; all other metadata are copied byte for byte. Other programs read it
in a fraction of the time, and do not round their activations to the file's type.
"""

import json
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.quantized import QuantizedWeight
from pellucid.reference.op import Array, Shape
from pellucid.reference.ops.quantization import dequantize, quantize

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` letter of each type of number in the metadata."""
STRING, ARRAY, UINT32 = 8, 9, 4
F32, F64 = 0, 28
VOCABULARY = tuple(f"tokenizer.ggml.{key}" for key in ("tokens", "merges", "scores", "token_type"))


@dataclass(frozen=True)
class TensorPlace:
    shape: Shape
    type: int
    offset: int
    """In bytes, from the start of the data."""

    @property
    def row_bytes(self) -> int:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType(self.type)]
        return self.shape[-1] // numbers * size

    @property
    def bytes(self) -> int:
        return prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class GgufHeader:
    """`metadata` has the type and the bytes of each key's value."""

    data: mmap.mmap
    version: int
    metadata: Mapping[str, tuple[int, bytes]]
    tensors: Mapping[str, TensorPlace]
    start: int
    """Where the data of the tensors begin."""

    def scalar(self, key: str) -> Any:
        """Returns the number or the text of a key, None where it is absent or an array."""
        type, value = self.metadata.get(key, (ARRAY, b""))
        if type == STRING:
            return value[8:].decode()
        return struct.unpack(f"<{SCALARS[type]}", value)[0] if type in SCALARS else None

    @cached_property
    def architecture(self) -> str:
        return str(self.scalar("general.architecture"))

    def read_bytes(self, name: str, widen: bool = False) -> bytes:
        """Returns the bytes of a tensor as they are stored, or as float32."""
        if widen:
            return self.dequantize(name).astype("<f4").tobytes()
        at = self.start + self.tensors[name].offset
        return self.data[at : at + self.tensors[name].bytes]

    def byte_rows(self, name: str) -> Array:
        """Returns the bytes of a tensor, [rows, bytes of a row]."""
        place = self.tensors[name]
        at = self.start + place.offset
        return np.frombuffer(self.data, np.uint8, place.bytes, at).reshape(-1, place.row_bytes)

    def dequantize(self, name: str, stride: int = 1) -> Array:
        """Returns the rows 0, stride, 2 stride, … of a tensor, dequantized by the `gguf` package."""
        place, rows = self.tensors[name], self.byte_rows(name)
        if len(place.shape) == 1:
            return _dequantize(rows, place.type)[0, ::stride]
        return _dequantize(rows[::stride], place.type)


def _dequantize(rows: Array, type: int) -> Array:
    from gguf import GGMLQuantizationType, quants

    if type == F64:  # which the package does not dequantize
        return np.ascontiguousarray(rows).view("<f8")
    return np.asarray(quants.dequantize(rows, GGMLQuantizationType(type)))


def read_header(path: Path) -> GgufHeader:
    """Returns the header of a file that `formats/gguf` has accepted."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    version, tensor_count, key_count = struct.unpack_from("<IQQ", data, 4)
    at = 24
    metadata: dict[str, tuple[int, bytes]] = {}
    for _ in range(key_count):
        key, at = _read_text(data, at)
        (type,) = struct.unpack_from("<I", data, at)
        end = _find_end(data, at + 4, type)
        metadata[key] = type, data[at + 4 : end]
        at = end
    tensors = {}
    for _ in range(tensor_count):
        name, at = _read_text(data, at)
        (axes,) = struct.unpack_from("<I", data, at)
        *lengths, type, offset = struct.unpack_from(f"<{axes}QIQ", data, at + 4)
        tensors[name] = TensorPlace(tuple(lengths[::-1]), type, offset)
        at += 16 + 8 * axes
    header = GgufHeader(data, version, metadata, tensors, 0)
    alignment = header.scalar("general.alignment") or 32
    return GgufHeader(data, version, metadata, tensors, _align(at, alignment))


def has_rope_scaling(header: GgufHeader) -> bool:
    """Returns whether the file scales RoPE's frequencies, by its metadata or by a tensor of factors."""
    keys = ("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear")
    return "rope_freqs.weight" in header.tensors or any(
        f"{header.architecture}.{key}" in header.metadata for key in keys
    )


def _read_text(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length].decode(), at + 8 + length


def _find_end(data: mmap.mmap, at: int, type: int) -> int:
    """Returns where a value of that type ends."""
    if type == STRING:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0])
    if type != ARRAY:
        return at + struct.calcsize(SCALARS[type])
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in SCALARS:
        return at + int(count) * struct.calcsize(SCALARS[inner])
    for _ in range(count):
        at = _find_end(data, at, inner)
    return at


def _align(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def write_excerpt(
    header: GgufHeader, path: Path, layers: int, *, vocabulary: bool = False, widen: bool = False
) -> None:
    """Writes the first blocks of a file; with `widen`, every tensor as float32. The number of blocks and,
    where the file leaves it to the vocabulary, the number of tokens are the only metadata that change."""
    blocks, size = f"{header.architecture}.block_count", f"{header.architecture}.vocab_size"
    metadata = {k: value for k, value in header.metadata.items() if vocabulary or k not in VOCABULARY}
    metadata[blocks] = UINT32, struct.pack("<I", layers)
    if "token_embd.weight" in header.tensors:
        metadata.setdefault(size, (UINT32, struct.pack("<I", header.tensors["token_embd.weight"].shape[0])))
    kept = {name: place for name, place in header.tensors.items() if _layer_of(name) < layers}
    if widen:
        kept = {name: replace(place, type=F32) for name, place in kept.items()}
    alignment = header.scalar("general.alignment") or 32
    parts = [b"GGUF", struct.pack("<IQQ", header.version, len(kept), len(metadata))]
    for key, (type, value) in metadata.items():
        parts += [_write_text(key), struct.pack("<I", type), value]
    offset = 0
    for name, place in kept.items():
        parts += [_write_text(name), struct.pack("<I", len(place.shape))]
        parts += [struct.pack(f"<{len(place.shape)}QIQ", *place.shape[::-1], place.type, offset)]
        offset += _align(place.bytes, alignment)
    head = b"".join(parts)
    with path.open("wb") as file:
        file.write(head.ljust(_align(len(head), alignment), b"\0"))
        for name, place in kept.items():
            file.write(header.read_bytes(name, widen).ljust(_align(place.bytes, alignment), b"\0"))


def _layer_of(name: str) -> int:
    """Returns the number of the block that a tensor belongs to, −1 for one outside the blocks."""
    kind, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if kind == "blk" and number.isdigit() else -1


def _write_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


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
