"""The header of a GGUF file, read a second time and apart from `formats/gguf`, so that each checks the other:
where the bytes of each tensor are, and which bytes of the metadata belong to which key.

An excerpt is a file with the first blocks of another, perhaps without its vocabulary, and perhaps with its
numbers dequantized by the `gguf` package; all other metadata are copied byte for byte. Other programs read it
in a fraction of the time, and do not round their activations to the file's type.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.reference.op import Array, Shape

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
