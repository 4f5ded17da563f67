"""The GGUF container: metadata (key, type, value), tensor infos, and the bytes of the tensors.

    "GGUF"  version  number of tensors  number of metadata entries
    metadata:  key  type  value
    tensor:    name  number of axes  their lengths, last axis first  type  offset of its bytes
    padding, then the bytes

Everything is little-endian; a string is its length in 8 bytes and then UTF-8. The file is untrusted: every
count is checked against the bytes that are left before anything is allocated. It is memory-mapped, so weights
stay on disk until they are used.
"""

import contextlib
import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pellucid.base.errors import ConfigError, FileError, file_errors, show
from pellucid.base.files import Damaged, need, validating
from pellucid.base.quantized import QuantizedWeight
from pellucid.formats.gguf.quants import BY_CODE, BY_NAME, NAMES, Array, Type, dequantize, read_blocks


class UnsupportedError(Exception):
    """A valid file uses a feature that is not supported; `reading_errors` adds which file it is."""


def require_support(holds: bool, complaint: str) -> None:
    if not holds:
        raise UnsupportedError(complaint)


@contextlib.contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turns everything that is wrong with a file into a FileError that names it."""
    try:
        with validating(path):
            yield
    except (UnsupportedError, ConfigError) as error:
        text = str(error)
        raise FileError(f"{path} cannot be read: {text}{'' if text.endswith(('.', '?')) else '.'}") from None


Value = bool | int | float | str | list[str] | Array

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""The default of general.alignment: tensors begin at multiples of it."""

NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
BOOL, TEXT, ARRAY = 7, 8, 9
FLOAT32 = 6

MAX_METADATA = 1 << 16
MAX_TENSORS = 1 << 18
MAX_STRINGS = 1 << 21
"""Strings in all arrays together: the largest vocabularies have half a million tokens and merges."""
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 64
MAX_STRING_BYTES = 1 << 26
MAX_ALIGNMENT = 1 << 16

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's shape, first axis slowest as in NumPy, its type, and the offset of its bytes."""

    shape: tuple[int, ...]
    type: Type
    start: int

    @property
    def bytes(self) -> int:
        return self.type.bytes(math.prod(self.shape))


@dataclass(frozen=True)
class Container:
    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    data: mmap.mmap

    def rows(self, name: str, begin: int = 0, end: int | None = None) -> Array:
        """Returns the numbers of a tensor, or of some of its rows, which must begin and end with a block."""
        stored = self.tensors[name]
        begin, end, _ = slice(begin, end).indices(stored.shape[0])
        numbers = dequantize(stored.type, self._view(stored, begin, end))
        return numbers.reshape(end - begin, *stored.shape[1:])

    def blocks(self, name: str, begin: int, end: int) -> QuantizedWeight:
        """Returns some rows of a matrix as they are stored: integers and scales."""
        stored = self.tensors[name]
        return read_blocks(stored.type, self._view(stored, begin, end), end - begin)

    def _view(self, stored: TensorInfo, begin: int, end: int) -> memoryview:
        row = math.prod(stored.shape[1:])
        first, last = (stored.start + stored.type.bytes(at * row) for at in (begin, end))
        return memoryview(self.data)[first:last]


def read_container(path: Path) -> Container:
    """Returns the metadata and tensor infos of a file; call it inside `reading_errors`."""
    with file_errors("read", path):
        if not path.is_file():  # a pipe would block forever
            raise FileError(f"{path} is not a file." if path.exists() else f"{path} does not exist.")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            need(size >= 24, "it is too short for GGUF")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = Cursor(data)
    tensors, metadata = _read_header(cursor)
    table = _read_metadata(cursor, metadata)
    return Container(path, table, _read_tensors(cursor, tensors, _read_alignment(table)), data)


class Cursor:
    """A position in the file from which values are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.end, self.strings_left = data, 0, len(data), MAX_STRINGS

    def read_bytes(self, count: int, what: str) -> bytes:
        need(count <= self.end - self.at, f"it ends inside {what}")
        self.at += count
        return self.data[self.at - count : self.at]

    def read_int(self, width: int, what: str) -> int:
        return int.from_bytes(self.read_bytes(width, what), "little")

    def read_count(self, least: int, what: str) -> int:
        """Returns a number of items that take at least `least` bytes each."""
        count = self.read_int(8, what)
        need(
            count * least <= self.end - self.at,
            f"{what}: {count:,} does not fit in the {self.end - self.at:,} bytes that are left",
        )
        return count

    def read_string(self, longest: int, what: str) -> str:
        length = self.read_count(1, what)
        need(length <= longest, f"{what} is {length:,} bytes long; the limit is {longest:,}")
        try:
            return self.read_bytes(length, what).decode()
        except UnicodeDecodeError:
            raise _not_utf8(what) from None

    def read_strings(self, what: str) -> list[str]:
        """Returns an array of strings. A vocabulary has many, so this loop is written for speed."""
        count = self.read_count(_LENGTH.size, what)
        self.strings_left -= count
        need(self.strings_left >= 0, f"it holds more than {MAX_STRINGS:,} strings, with those of {what}")
        data, at, end, found = self.data, self.at, self.end, list[str]()
        length_at, keep = _LENGTH.unpack_from, found.append
        try:
            for _ in range(count):
                begin = at + 8
                if begin > end:
                    break
                at = begin + length_at(data, begin - 8)[0]
                if at > end:
                    break
                keep(data[begin:at].decode())
        except UnicodeDecodeError:
            raise _not_utf8(what) from None
        need(len(found) == count, f"it ends inside {what}")
        self.at = at
        return found

    def read_value(self, code: int, what: str) -> Value:
        if code in NUMBERS:
            return _read_scalar(code, self.read_bytes(np.dtype(NUMBERS[code]).itemsize, what))
        if code == BOOL:
            return _read_bool(self.read_bytes(1, what)[0], what)
        if code == TEXT:
            return self.read_string(MAX_STRING_BYTES, what)
        need(code == ARRAY, f"{what} has the type {code}; types are 0 to 12")
        inner = self.read_int(4, what)
        require_support(inner != ARRAY, f"{what} is an array of arrays")
        if inner == TEXT:
            return self.read_strings(what)
        need(inner in NUMBERS or inner == BOOL, f"{what} is an array of the type {inner}")
        kind = np.dtype(NUMBERS.get(inner, "?"))
        count = self.read_count(kind.itemsize, what)
        return np.frombuffer(self.read_bytes(count * kind.itemsize, what), kind)


def _not_utf8(what: str) -> Damaged:
    return Damaged(f"{what} is not UTF-8")


def _read_scalar(code: int, data: bytes) -> Value:
    """Returns a number; a float32 as the shortest decimal that rounds to it: 1e-05, not 9.9999997e-06."""
    number = np.frombuffer(data, NUMBERS[code])[0]
    return float(str(number)) if code == FLOAT32 else number.item()


def _read_bool(byte: int, what: str) -> bool:
    need(byte in (0, 1), f"{what} must be 0 or 1, not {byte}")
    return byte == 1


def _read_header(cursor: Cursor) -> tuple[int, int]:
    need(cursor.read_bytes(4, "the header") == MAGIC, "it does not begin with GGUF")
    version = cursor.read_bytes(4, "the header")
    number, swapped = (int.from_bytes(version, order) for order in ("little", "big"))
    require_support(swapped not in (1, *VERSIONS), "it is big-endian GGUF; only little-endian is supported")
    known = " and ".join(map(str, VERSIONS))
    require_support(number in VERSIONS, f"it is GGUF version {number}; versions {known} are supported")
    tensors = cursor.read_count(32, "the number of tensors")
    metadata = cursor.read_count(13, "the number of metadata entries")
    need(tensors <= MAX_TENSORS, f"it claims {tensors:,} tensors")
    need(metadata <= MAX_METADATA, f"it claims {metadata:,} metadata entries")
    return tensors, metadata


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    table: dict[str, Value] = {}
    for i in range(count):
        key = cursor.read_string(MAX_KEY_BYTES, f"the key of metadata entry {i}")
        need(key != "", f"metadata entry {i} has an empty key")
        need(key not in table, f"the key {show_name(key)} comes twice")
        table[key] = cursor.read_value(cursor.read_int(4, f"the type of {show_name(key)}"), show_name(key))
    return table


def _read_alignment(metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", ALIGNMENT)
    good = type(alignment) is int and 8 <= alignment <= MAX_ALIGNMENT and alignment.bit_count() == 1
    need(
        good,
        f"general.alignment is {alignment!r}, and must be a power of two from 8 to {MAX_ALIGNMENT:,}",
    )
    assert isinstance(alignment, int)
    return alignment


def show_name(name: str) -> str:
    """Returns an untrusted name as a message may hold it: short, and without control characters.

    >>> show_name("llama.block_count"), show_name("a\\nb")
    ('llama.block_count', "'a\\\\nb'")
    """
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= 80 else f"{text[:77]}…"


def align(place: int, alignment: int) -> int:
    """Returns the next offset at which a tensor may begin.

    >>> align(65, 32)
    96
    """
    return -(-place // alignment) * alignment


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    found: dict[str, tuple[tuple[int, ...], Type, int]] = {}
    for i in range(count):
        key = cursor.read_string(MAX_NAME_BYTES, f"the name of tensor {i}")
        name = show_name(key)
        need(key != "", f"tensor {i} has no name")
        need(key not in found, f"the tensor {name} comes twice")
        axes = cursor.read_int(4, name)
        need(1 <= axes <= 4, f"the tensor {name} has {axes} axes, and 1 to 4 are allowed")
        shape = tuple(cursor.read_int(8, name) for _ in range(axes))[::-1]
        stored_as = _find_type(cursor.read_int(4, name), name)
        need(0 not in shape, f"the tensor {name} has an axis of length 0")
        need(math.prod(shape) < 2**63, f"the tensor {name} has the impossible shape {shape}")
        whole = shape[-1] % stored_as.size == 0
        need(
            whole, f"rows of {shape[-1]} numbers do not fill blocks of {stored_as.name}, in the tensor {name}"
        )
        offset = cursor.read_int(8, name)
        need(
            offset % alignment == 0,
            f"the tensor {name} begins at {offset}, which is not a multiple of {alignment}",
        )
        found[key] = shape, stored_as, offset
    data = align(cursor.at, alignment)
    tensors = {name: TensorInfo(shape, type, data + offset) for name, (shape, type, offset) in found.items()}
    _check_places(tensors, cursor.end)
    return tensors


def _find_type(code: int, name: str) -> Type:
    need(code in NAMES, f"the tensor {name} has the unknown type {code}")
    require_support(
        code in BY_CODE, f"the tensor {name} is stored as {NAMES[code]}; {', '.join(BY_NAME)} are supported"
    )
    return BY_CODE[code]


def _check_places(tensors: Mapping[str, TensorInfo], end: int) -> None:
    """Raises unless every tensor lies inside the file, and no two overlap."""
    before, reached = "", 0
    for name, stored in sorted(tensors.items(), key=lambda entry: entry[1].start):
        need(stored.start >= reached, f"the tensors {show_name(before)} and {show_name(name)} overlap")
        reached, before = stored.start + stored.bytes, name
        need(
            reached <= end,
            f"the tensor {show_name(name)} ends at byte {reached:,}, after the file's end at {end:,}: it was "
            "cut off, so copy or fetch it again",
        )


# ---- metadata by name: a key that was not read is refused, since it may change the arithmetic


class Metadata:
    """The keys of the architecture, without its prefix; `implied` are defaults that follow from the tensors,
    `tables` the tensors that are not weights."""

    def __init__(
        self,
        metadata: Mapping[str, Value],
        architecture: str,
        implied: Mapping[str, Value],
        tables: Mapping[str, Array],
    ) -> None:
        self.prefix, self.tables = f"{architecture}.", tables
        self.metadata = dict(implied) | {
            key.removeprefix(self.prefix): value
            for key, value in metadata.items()
            if key.startswith(self.prefix)
        }
        self.seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        require_support(not isinstance(value, np.ndarray), f"{self.prefix}{key} differs from layer to layer")
        need(
            type(value) is int and value > 0,
            f"{self.prefix}{key} is {show(value)}, not an integer ≥ 1",
        )
        return value  # type: ignore[return-value]

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        need(type(value) in (int, float), f"{self.prefix}{key} is {show(value)}, not a number")
        return float(value)  # type: ignore[arg-type]

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        need(isinstance(value, str), f"{self.prefix}{key} is {show(value)}, not a string")
        return value  # type: ignore[return-value]

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        need(isinstance(value, bool), f"{self.prefix}{key} is {show(value)}, neither true nor false")
        return value  # type: ignore[return-value]

    def _get(self, key: str, default: Value | None) -> Value:
        self.seen.add(key)
        value = self.metadata.get(key, default)
        need(value is not None, f"the metadata key {self.prefix}{key} is missing")
        assert value is not None
        return value

    def refuse_others(self, harmless: Mapping[str, Value]) -> None:
        """Raises where a key was not read, unless its value is one of `harmless`, which change nothing."""
        for key, value in self.metadata.items():
            if key not in self.seen:
                known = key in harmless and type(value) is type(harmless[key]) and value == harmless[key]
                require_support(
                    known,
                    f"{show_name(self.prefix + key)} = {show(value)} is not supported",
                )
