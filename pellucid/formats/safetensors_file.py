"""Tensors in safetensors files, one or several shards: read when used, written one after the other.

A file is the length of the header in eight bytes, the header (JSON: each tensor's type, shape and offsets),
and the numbers. The `safetensors` library validates a file; the numbers are read through a memory map, so
that opening a model is cheap and no tensor is in memory before it is used.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pellucid.base.dtypes import FLOAT_STORAGE, STORAGE, Array, decode
from pellucid.base.errors import FileError, UsageError, file_error, quote, show
from pellucid.base.files import Damaged, need, validating, whole_file
from pellucid.base.formatting import format_bytes
from pellucid.formats.folder import file_in, has_file, parse_table, read_table, write_table
from pellucid.formats.pretrained import Shape

ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
MAX_NAME_LENGTH, MAX_TENSORS, MAX_INDEX_BYTES = 512, 200_000, 1 << 27

Types = Mapping[str, np.dtype[Any]]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file. `bits` returns its numbers in their stored type, BF16 as uint16."""

    type: str
    shape: Shape
    bits: Callable[[], Array]

    def read(self) -> Array:
        """Returns the numbers; F16 and BF16 as float32."""
        return decode(self.bits(), self.type)


def read_tensors(folder: Path, known: Types = FLOAT_STORAGE) -> dict[str, StoredTensor]:
    """Returns the tensors of a folder: of `model.safetensors`, or of the shards in its index."""
    if has_file(folder, ONE_FILE):
        return read_file(file_in(folder, ONE_FILE), known)
    if not has_file(folder, INDEX):
        raise FileError(f"{folder} has no weights: neither {ONE_FILE} nor {INDEX}.")
    return read_shards(folder, INDEX, ".safetensors", partial(read_file, known=known))


def read_shards(
    folder: Path, index: str, suffix: str, read: Callable[[Path], Mapping[str, StoredTensor]]
) -> dict[str, StoredTensor]:
    """Returns the tensors of all shards; each must be in the shard that the index names, and in no other."""
    path = file_in(folder, index)
    placed = read_table(path, MAX_INDEX_BYTES).get("weight_map")
    found: dict[str, StoredTensor] = {}
    with validating(path):
        if not isinstance(placed, dict) or not placed:
            raise Damaged("it has no weight_map from tensors to files")
        for name, shard in placed.items():
            plain = isinstance(shard, str) and Path(shard).name == shard and shard.endswith(suffix)
            need(plain, f"{show(name)} is in {show(shard)}, which is not a {suffix} file of this folder")
        for shard in sorted(set(placed.values())):
            need(has_file(folder, shard), f"its shard {show(shard)} is missing")
            for name, tensor in read(file_in(folder, shard)).items():
                need(
                    placed.get(name) == shard,
                    f"{shard} has {show(name)}, which the index places in another file",
                )
                found[name] = tensor
        for name, shard in placed.items():
            need(name in found, f"{show(name)} is not in {shard}, where the index places it")
    return found


def read_file(path: Path, known: Types = FLOAT_STORAGE) -> dict[str, StoredTensor]:
    """Returns the tensors of one file, by name, not read yet; one of unknown type raises when it is read."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileError(f"{path} does not exist.")
    try:
        with path.open("rb") as file:  # before the library, which reports every error as a missing file
            with safe_open(path, framework="numpy"):
                pass
            start = 8 + int.from_bytes(file.read(8), "little")
            header = file.read(start - 8)
        data: Array = np.asarray(np.memmap(path, np.uint8, "r"))[start:]
    except OSError as error:
        raise file_error("read", path, error) from None
    except (SafetensorError, ValueError) as error:
        size = path.stat().st_size
        if size < (described := _count_bytes(path)):
            raise FileError(
                f"{path} is cut short: it has {format_bytes(size)} of the {format_bytes(described)} that its "
                "header describes. Copy it again, whole."
            ) from None
        raise FileError(f"{path} is not a safetensors file: {quote(error)}.") from None
    with validating(path):
        entries = parse_table(header)
        entries.pop("__metadata__", None)
        need(len(entries) <= MAX_TENSORS, f"it has {len(entries):,} tensors; the limit is {MAX_TENSORS:,}")
        return {name: _read_entry(name, entry, data, known) for name, entry in entries.items()}


def _count_bytes(path: Path) -> int:
    """Returns the size of a file by its header, 0 where it cannot be read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            entries = parse_table(file.read(min(length, MAX_INDEX_BYTES)))
            ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
            size = 8 + length + int(max(ends, default=0))
            return size if size < 2**63 else 0
        except (Damaged, ValueError, OverflowError, TypeError, KeyError, IndexError):  # 1e400 is infinite
            return 0


def _read_entry(name: str, entry: Any, data: Array, known: Types) -> StoredTensor:
    need(len(name) <= MAX_NAME_LENGTH, f"the tensor {show(name)} has a name of {len(name)} characters")
    need(isinstance(entry, dict), f"the entry of the tensor {show(name)} is not a table")
    type, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    need(isinstance(type, str), f"the tensor {show(name)} has no type")
    need(_is_sizes(shape) and len(shape) <= 64, f"the tensor {show(name)} has the shape {show(shape)}")
    inside = _is_sizes(place) and len(place) == 2 and place[0] <= place[1] <= len(data)
    need(
        inside,
        f"the tensor {show(name)} has the data_offsets {show(place)}, and the file {len(data):,} bytes",
    )
    if type not in known:
        return StoredTensor(type, tuple(shape), partial(_refuse, name, type))
    size = math.prod(shape) * known[type].itemsize
    need(place[1] - place[0] == size, f"the tensor {show(name)} has {place[1] - place[0]} bytes, not {size}")
    return StoredTensor(
        type, tuple(shape), partial(_view_bits, data[slice(*place)], known[type], tuple(shape))
    )


def _is_sizes(given: Any) -> bool:
    return isinstance(given, list) and all(type(size) is int and size >= 0 for size in given)


def _view_bits(data: Array, dtype: np.dtype[Any], shape: Shape) -> Array:
    return data.view(dtype).reshape(shape)


def _refuse(name: str, type: str) -> Array:
    raise FileError(describe_wrong_type(name, type))


def describe_wrong_type(name: str, type: str) -> str:
    return f"{show(name)} is stored as {show(type)}, and weights are read as {', '.join(FLOAT_STORAGE)}"


def write_tensors(folder: Path, tensors: Mapping[str, StoredTensor], shard_bytes: int = SHARD_BYTES) -> None:
    """Writes `model.safetensors`, or shards of at most `shard_bytes` (or one tensor) each and their index."""
    shards = _split_shards(tensors, shard_bytes)
    if len(shards) == 1:
        write_file(folder / ONE_FILE, tensors)
        return
    placed: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_file(folder / name, shard)
        placed |= dict.fromkeys(shard, name)
    total = sum(map(_byte_size, tensors.values()))
    write_table(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": placed})


def _split_shards(tensors: Mapping[str, StoredTensor], shard_bytes: int) -> list[dict[str, StoredTensor]]:
    shards, size = [dict[str, StoredTensor]()], 0
    for name, tensor in tensors.items():
        if shards[-1] and size + _byte_size(tensor) > shard_bytes:
            shards, size = [*shards, {}], 0
        shards[-1][name] = tensor
        size += _byte_size(tensor)
    return shards


def _byte_size(tensor: StoredTensor) -> int:
    return math.prod(tensor.shape) * STORAGE[tensor.type].itemsize


def write_file(path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Writes one file. The header needs only types and shapes, so one tensor is in memory at a time."""
    # The widest types first, so that every tensor is aligned.
    widest_first = dict(sorted(tensors.items(), key=lambda item: -STORAGE[item[1].type].itemsize))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, (start, end) in zip(widest_first, _offsets(widest_first), strict=True):
        tensor = widest_first[name]
        header[name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in widest_first.items():
            _write_tensor(file, name, tensor)


def _offsets(tensors: Mapping[str, StoredTensor]) -> Iterator[tuple[int, int]]:
    start = 0
    for tensor in tensors.values():
        yield start, start + _byte_size(tensor)
        start += _byte_size(tensor)


def _write_tensor(file: BinaryIO, name: str, tensor: StoredTensor) -> None:
    try:
        bits = np.asarray(tensor.bits(), STORAGE[tensor.type], order="C")
    except UsageError as error:
        raise UsageError(f"the weight {name}: {error}; give a type to write, such as F32.") from None
    if bits.shape != tensor.shape:
        raise UsageError(
            f"the weight {name} has the shape {bits.shape}, not {tensor.shape} as in its config."
        )
    file.write(bits.reshape(-1).view(np.uint8).data)
