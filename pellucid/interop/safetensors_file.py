"""Tensors in safetensors files, one or many: read when asked for, written one after the other.

A file is eight bytes that say how long the header is, the header (JSON: each tensor's type, shape and place),
and the numbers. The `safetensors` library checks a file; the numbers are read through a memory map, so that
opening a model costs nothing and no tensor is in memory before it is used.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pellucid.dtypes import FLOAT_STORAGE, STORAGE, Array, decode
from pellucid.errors import FileError, UsageError, file_error, quote, show
from pellucid.files import Damaged, need, validating, whole_file
from pellucid.interop.folder import has, read_table, table, within, write_table
from pellucid.pretrained import Shape

ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
LONGEST_NAME, MOST_TENSORS, LARGEST_INDEX = 512, 200_000, 1 << 27

Types = Mapping[str, np.dtype[Any]]


@dataclass(frozen=True)
class Stored:
    """A tensor as a file holds it. `bits` gives its numbers in their own type, BF16 as whole numbers."""

    type: str
    shape: Shape
    bits: Callable[[], Array]

    def read(self) -> Array:
        return decode(self.bits(), self.type)


def read_tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of a folder: of `model.safetensors`, or of the shards that its index names."""
    if has(folder, ONE_FILE):
        return read_file(within(folder, ONE_FILE))
    return read_shards(folder, INDEX, ".safetensors", read_file)


def read_shards(
    folder: Path, index: str, suffix: str, read: Callable[[Path], Mapping[str, Stored]]
) -> dict[str, Stored]:
    """The tensors of all shards; each is in the shard in which the index says it is, and in no other."""
    path = within(folder, index)
    placed = read_table(path, LARGEST_INDEX).get("weight_map")
    found: dict[str, Stored] = {}
    with validating(path):
        if not isinstance(placed, dict) or not placed:
            raise Damaged("it has no weight_map, a table of tensors and files")
        for name, shard in placed.items():
            plain = isinstance(shard, str) and Path(shard).name == shard and shard.endswith(suffix)
            need(plain, f"{show(name)} is in {show(shard)}, which is no {suffix} file of this folder")
        for shard in sorted(set(placed.values())):
            need(has(folder, shard), f"its shard {show(shard)} is not there")
            for name, tensor in read(within(folder, shard)).items():
                need(placed.get(name) == shard, f"{shard} holds {show(name)}, which the index has elsewhere")
                found[name] = tensor
        for name, shard in placed.items():
            need(name in found, f"{show(name)} is not in {shard}, where the index has it")
    return found


def read_file(path: Path, known: Types = FLOAT_STORAGE) -> dict[str, Stored]:
    """The tensors of one file, by name, none of them read yet; of an unknown type they never are."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileError(f"{path} is not there.")
    try:
        with path.open("rb") as file:  # before the library, which calls every refusal an absence
            with safe_open(path, framework="numpy"):
                pass
            start = 8 + int.from_bytes(file.read(8), "little")
            header = file.read(start - 8)
        data: Array = np.asarray(np.memmap(path, np.uint8, "r"))[start:]
    except OSError as error:
        raise file_error("read", path, error) from None
    except (SafetensorError, ValueError) as error:
        raise FileError(f"{path} is not a safetensors file: {quote(error)}.") from None
    with validating(path):
        entries = table(header)
        entries.pop("__metadata__", None)
        need(len(entries) <= MOST_TENSORS, f"it has {len(entries):,} tensors, more than {MOST_TENSORS:,}")
        return {name: _entry(name, entry, data, known) for name, entry in entries.items()}


def _entry(name: str, entry: Any, data: Array, known: Types) -> Stored:
    need(len(name) <= LONGEST_NAME, f"the tensor {show(name)} has a name of {len(name)} characters")
    need(isinstance(entry, dict), f"the tensor {show(name)} is no table")
    type, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    need(isinstance(type, str), f"the tensor {show(name)} has no type")
    need(_sizes(shape) and len(shape) <= 64, f"the tensor {show(name)} has the shape {show(shape)}")
    inside = _sizes(place) and len(place) == 2 and place[0] <= place[1] <= len(data)
    need(inside, f"the tensor {show(name)} lies at {show(place)}, and there are {len(data):,} bytes")
    if type not in known:
        return Stored(type, tuple(shape), partial(_refuse, name, type))
    size = math.prod(shape) * known[type].itemsize
    need(place[1] - place[0] == size, f"the tensor {show(name)} has {place[1] - place[0]} bytes, not {size}")
    return Stored(type, tuple(shape), partial(_bits, data[slice(*place)], known[type], tuple(shape)))


def _sizes(given: Any) -> bool:
    return isinstance(given, list) and all(type(size) is int and size >= 0 for size in given)


def _bits(data: Array, dtype: np.dtype[Any], shape: Shape) -> Array:
    return data.view(dtype).reshape(shape)


def _refuse(name: str, type: str) -> Array:
    raise FileError(not_a_weight(name, type))


def not_a_weight(name: str, type: str) -> str:
    return f"{show(name)} is stored as {show(type)}, and weights are read as {', '.join(FLOAT_STORAGE)}"


def write_tensors(folder: Path, tensors: Mapping[str, Stored], shard_bytes: int = SHARD_BYTES) -> None:
    """Write `model.safetensors`, or shards of at most so many bytes (or of one tensor) and their index."""
    shards = _shards(tensors, shard_bytes)
    if len(shards) == 1:
        write_file(folder / ONE_FILE, tensors)
        return
    placed: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_file(folder / name, shard)
        placed |= dict.fromkeys(shard, name)
    total = sum(map(_size, tensors.values()))
    write_table(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": placed})


def _shards(tensors: Mapping[str, Stored], most: int) -> list[dict[str, Stored]]:
    shards, size = [dict[str, Stored]()], 0
    for name, tensor in tensors.items():
        if shards[-1] and size + _size(tensor) > most:
            shards, size = [*shards, {}], 0
        shards[-1][name] = tensor
        size += _size(tensor)
    return shards


def _size(tensor: Stored) -> int:
    return math.prod(tensor.shape) * STORAGE[tensor.type].itemsize


def write_file(path: Path, tensors: Mapping[str, Stored]) -> None:
    """One file. The header needs only types and shapes, so each tensor is made when its turn comes."""
    widest_first = dict(
        sorted(tensors.items(), key=lambda item: -STORAGE[item[1].type].itemsize)
    )  # aligned so
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, (start, end) in zip(widest_first, _places(widest_first), strict=True):
        tensor = widest_first[name]
        header[name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in widest_first.items():
            _write(file, name, tensor)


def _places(tensors: Mapping[str, Stored]) -> Iterator[tuple[int, int]]:
    start = 0
    for tensor in tensors.values():
        yield start, start + _size(tensor)
        start += _size(tensor)


def _write(file: BinaryIO, name: str, tensor: Stored) -> None:
    try:
        bits = np.asarray(tensor.bits(), STORAGE[tensor.type], order="C")
    except UsageError as error:
        raise UsageError(f"the weight {name}: {error}; say in which type to write it, such as F32.") from None
    if bits.shape != tensor.shape:
        raise UsageError(f"the weight {name} has the shape {bits.shape}, and its config says {tensor.shape}.")
    file.write(bits.reshape(-1).view(np.uint8).data)
