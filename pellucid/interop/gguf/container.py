"""The GGUF file itself: a table of facts, a table of tensors, and their bytes, read as a stranger's must be.

    "GGUF"  version  how many tensors  how many facts
    fact:    name  type  value
    tensor:  name  how many axes  their lengths, last axis first  type  where its bytes are
    padding, then the bytes

Everything is little-endian; a text is its length in 8 bytes and then UTF-8. Every count is held against the
bytes that are left before anything is made of it, and the file is mapped, so weights stay on disk until
they are asked for.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pellucid.errors import FileError, file_error
from pellucid.files import Damaged, need
from pellucid.interop.gguf.opening import support
from pellucid.interop.gguf.quants import BY_CODE, BY_NAME, NAMES, Array, Type, dequantise

Value = bool | int | float | str | list[str] | Array

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Where a file says nothing, tensors begin at multiples of this."""

NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
BOOL, TEXT, ARRAY = 7, 8, 9
FLOAT32 = 6

MOST_FACTS = 1 << 16
MOST_TENSORS = 1 << 18
MOST_TEXTS = 1 << 21
"""Texts in all arrays together: the largest vocabularies have half a million tokens and merges."""
LONGEST_KEY = (1 << 16) - 1
LONGEST_NAME = 64
LONGEST_TEXT = 1 << 26
LARGEST_ALIGNMENT = 1 << 16

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Stored:
    """A tensor's shape, first axis slowest as everywhere in this program, and where its bytes are."""

    shape: tuple[int, ...]
    type: Type
    start: int

    @property
    def bytes(self) -> int:
        return self.type.bytes(math.prod(self.shape))


@dataclass(frozen=True)
class Container:
    path: Path
    facts: Mapping[str, Value]
    tensors: Mapping[str, Stored]
    data: mmap.mmap

    def rows(self, name: str, begin: int = 0, end: int | None = None) -> Array:
        """The numbers of a tensor, or of some of its rows, if those begin and end with a block."""
        stored = self.tensors[name]
        begin, end, _ = slice(begin, end).indices(stored.shape[0])
        row = math.prod(stored.shape[1:])
        first, last = (stored.start + stored.type.bytes(at * row) for at in (begin, end))
        view = memoryview(self.data)[first:last]
        return dequantise(stored.type, view).reshape(end - begin, *stored.shape[1:])


def read_container(path: Path) -> Container:
    """The two tables of a file; inside `opening`."""
    try:
        if not path.is_file():  # a pipe would wait for ever
            raise FileError(f"{path} is no file." if path.exists() else f"{path} is not there.")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            need(size >= 24, "it is too short for GGUF")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise file_error("read", path, error) from None
    cursor = Cursor(data)
    tensors, facts = _header(cursor)
    table = _facts(cursor, facts)
    return Container(path, table, _tensors(cursor, tensors, _alignment(table)), data)


class Cursor:
    """A place in the file, and what can be taken from there."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.end, self.texts_left = data, 0, len(data), MOST_TEXTS

    def bytes(self, count: int, what: str) -> bytes:
        need(count <= self.end - self.at, f"it ends inside {what}")
        self.at += count
        return self.data[self.at - count : self.at]

    def whole(self, width: int, what: str) -> int:
        return int.from_bytes(self.bytes(width, what), "little")

    def count(self, least: int, what: str) -> int:
        """A number of things that take at least so many bytes each."""
        count = self.whole(8, what)
        need(
            count * least <= self.end - self.at,
            f"{what} says {count:,} where {self.end - self.at:,} bytes are left",
        )
        return count

    def text(self, longest: int, what: str) -> str:
        length = self.count(1, what)
        need(length <= longest, f"{what} is {length:,} bytes long, and {longest:,} is the most")
        try:
            return self.bytes(length, what).decode()
        except UnicodeDecodeError:
            raise _not_utf8(what) from None

    def texts(self, what: str) -> list[str]:
        """An array of texts; a vocabulary has many, so this loop is written to be quick."""
        count = self.count(_LENGTH.size, what)
        self.texts_left -= count
        need(self.texts_left >= 0, f"it holds more than {MOST_TEXTS:,} texts, with those of {what}")
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

    def value(self, code: int, what: str) -> Value:
        if code in NUMBERS:
            return _scalar(code, self.bytes(np.dtype(NUMBERS[code]).itemsize, what))
        if code == BOOL:
            return _truth(self.bytes(1, what)[0], what)
        if code == TEXT:
            return self.text(LONGEST_TEXT, what)
        need(code == ARRAY, f"{what} has the type {code}, and types go from 0 to 12")
        inner = self.whole(4, what)
        support(inner != ARRAY, f"{what} is an array of arrays")
        if inner == TEXT:
            return self.texts(what)
        need(inner in NUMBERS or inner == BOOL, f"{what} is an array of the type {inner}")
        kind = np.dtype(NUMBERS.get(inner, "?"))
        count = self.count(kind.itemsize, what)
        return np.frombuffer(self.bytes(count * kind.itemsize, what), kind)


def _not_utf8(what: str) -> Damaged:
    return Damaged(f"{what} is not UTF-8")


def _scalar(code: int, data: bytes) -> Value:
    """A float32 becomes the shortest decimal that means it: 1e-05, not 9.999999747378752e-06."""
    number = np.frombuffer(data, NUMBERS[code])[0]
    return float(str(number)) if code == FLOAT32 else number.item()


def _truth(byte: int, what: str) -> bool:
    need(byte in (0, 1), f"{what} is neither true nor false but {byte}")
    return byte == 1


def _header(cursor: Cursor) -> tuple[int, int]:
    need(cursor.bytes(4, "the header") == MAGIC, "it does not begin with GGUF")
    version = cursor.bytes(4, "the header")
    number, swapped = (int.from_bytes(version, order) for order in ("little", "big"))
    support(swapped not in (1, *VERSIONS), "it is big-endian GGUF, and only little-endian is read")
    known = " and ".join(map(str, VERSIONS))
    support(number in VERSIONS, f"it is GGUF version {number}, and versions {known} are read")
    tensors = cursor.count(32, "the number of tensors")
    facts = cursor.count(13, "the number of facts")
    need(tensors <= MOST_TENSORS, f"it says that it has {tensors:,} tensors")
    need(facts <= MOST_FACTS, f"it says that it has {facts:,} facts")
    return tensors, facts


def _facts(cursor: Cursor, count: int) -> dict[str, Value]:
    table: dict[str, Value] = {}
    for i in range(count):
        key = cursor.text(LONGEST_KEY, f"the name of fact {i}")
        need(key != "", f"fact {i} has no name")
        need(key not in table, f"the fact {shown(key)} is there twice")
        table[key] = cursor.value(cursor.whole(4, f"the type of {shown(key)}"), shown(key))
    return table


def _alignment(facts: Mapping[str, Value]) -> int:
    alignment = facts.get("general.alignment", ALIGNMENT)
    good = type(alignment) is int and 8 <= alignment <= LARGEST_ALIGNMENT and alignment.bit_count() == 1
    need(
        good,
        f"general.alignment is {alignment!r}, and must be a power of two from 8 to {LARGEST_ALIGNMENT:,}",
    )
    assert isinstance(alignment, int)
    return alignment


def shown(name: str) -> str:
    """A stranger's name as a message may hold it: short, and without control characters.

    >>> shown("llama.block_count"), shown("a\\nb")
    ('llama.block_count', "'a\\\\nb'")
    """
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= 80 else f"{text[:77]}…"


def padded(place: int, alignment: int) -> int:
    """The next place where a tensor may begin.

    >>> padded(65, 32)
    96
    """
    return -(-place // alignment) * alignment


def _tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, Stored]:
    found: dict[str, tuple[tuple[int, ...], Type, int]] = {}
    for i in range(count):
        key = cursor.text(LONGEST_NAME, f"the name of tensor {i}")
        name = shown(key)
        need(key != "", f"tensor {i} has no name")
        need(key not in found, f"the tensor {name} is there twice")
        axes = cursor.whole(4, name)
        need(1 <= axes <= 4, f"the tensor {name} has {axes} axes, and 1 to 4 are allowed")
        shape = tuple(cursor.whole(8, name) for _ in range(axes))[::-1]
        stored_as = _type(cursor.whole(4, name), name)
        need(0 not in shape, f"the tensor {name} has an axis of length 0")
        need(math.prod(shape) < 2**63, f"the tensor {name} has the impossible shape {shape}")
        whole = shape[-1] % stored_as.size == 0
        need(
            whole, f"rows of {shape[-1]} numbers do not fill blocks of {stored_as.name}, in the tensor {name}"
        )
        offset = cursor.whole(8, name)
        need(offset % alignment == 0, f"the tensor {name} begins at {offset}, no multiple of {alignment}")
        found[key] = shape, stored_as, offset
    data = padded(cursor.at, alignment)
    tensors = {name: Stored(shape, type, data + offset) for name, (shape, type, offset) in found.items()}
    _check_places(tensors, cursor.end)
    return tensors


def _type(code: int, name: str) -> Type:
    need(code in NAMES, f"the tensor {name} has the unknown type {code}")
    support(code in BY_CODE, f"the tensor {name} is stored as {NAMES[code]}; {', '.join(BY_NAME)} are read")
    return BY_CODE[code]


def _check_places(tensors: Mapping[str, Stored], end: int) -> None:
    """Every tensor lies inside the file, and no two share a byte."""
    before, reached = "", 0
    for name, stored in sorted(tensors.items(), key=lambda entry: entry[1].start):
        need(stored.start >= reached, f"the tensors {shown(before)} and {shown(name)} overlap")
        reached, before = stored.start + stored.bytes, name
        need(
            reached <= end,
            f"the tensor {shown(name)} ends at byte {reached:,}, after the file's end at {end:,}",
        )
