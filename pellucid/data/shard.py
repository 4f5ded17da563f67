"""A shard: the ids of whole documents, one after the other, and where each document ends.

    bytes                    what
    0  … 8                   "PELLTOKS"
    8  … 12                  format number
    12 … 16                  bytes of an id: 2 or 4
    16 … 24                  vocabulary size
    24 … 24 + tokens·size    ids, padded with zeros to a multiple of 8
    …                        for each document, the number of ids up to its end, 8 bytes
    last 24                  tokens, documents, "PELLDONE"

All numbers are little-endian and unsigned. The counts are at the end, so that a shard is written in one
pass; they fix the size of the file, so that truncation is found at once.
"""

import hashlib
import os
import struct
import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pellucid.base.errors import FileError, file_errors

MAGIC, DONE, FORMAT = b"PELLTOKS", b"PELLDONE", 1
HEAD, TAIL = struct.Struct("<8sIIQ"), struct.Struct("<QQ8s")

Ids = np.ndarray[Any, np.dtype[Any]]

MAPPED = 512
"""Shards that are memory-mapped at a time: each is an open file, of which a process often may have 1,024."""
_mapped: "deque[weakref.ref[Shard]]" = deque()


def id_type(vocab_size: int) -> np.dtype[Any]:
    """Returns the smallest dtype that holds every id.

    >>> id_type(65_536), id_type(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


@dataclass
class ShardWriter:
    """Writes a shard and computes its checksum in one pass."""

    file: BinaryIO
    vocab_size: int
    tokens: int = 0
    ends: list[Ids] = field(default_factory=list)
    sha256: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.size = id_type(self.vocab_size).itemsize
        self._write(HEAD.pack(MAGIC, FORMAT, self.size, self.vocab_size))

    def add(self, ids: Ids, ends: Ids) -> None:
        """Appends ids, with the counts of ids after which documents end."""
        self._write(ids.tobytes())
        self.ends.append((ends + self.tokens).astype("<u8"))
        self.tokens += len(ids)

    def finish(self) -> str:
        """Completes the file and returns its checksum."""
        ends = np.concatenate([*self.ends, np.empty(0, "<u8")])
        self._write(bytes(-self.tokens * self.size % 8))
        self._write(ends.tobytes())
        self._write(TAIL.pack(self.tokens, len(ends), DONE))
        return str(self.sha256.hexdigest())

    def _write(self, data: bytes) -> None:
        self.file.write(data)
        self.sha256.update(data)


class Shard:
    """A shard opened for reading: only its head and tail are read at first."""

    def __init__(self, path: Path) -> None:
        self.path, self._ends_are_checked = path, False
        with file_errors("read", path), path.open("rb") as file:
            head = file.read(HEAD.size)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL.size))
            tail = file.read(TAIL.size)
        if head[:8] != MAGIC:
            raise FileError(f"{path} is not a token file: byte 0 does not begin {MAGIC.decode()!r}.")
        if size < HEAD.size + TAIL.size:
            raise FileError(f"{path} is truncated: it ends at byte {size}, before its counts.")
        _, format, self.item, self.vocab_size = HEAD.unpack(head)
        if format != FORMAT:
            raise FileError(
                f"{path} has token-file format {format} (byte 8); this version of Pellucid reads {FORMAT}. "
                "Use the version that wrote it, or a newer one."
            )
        if not 0 < self.vocab_size <= 2**32 or self.item != id_type(self.vocab_size).itemsize:
            raise FileError(
                f"{path} is damaged: byte 12 says that an id of a vocabulary of {self.vocab_size} "
                f"takes {self.item} bytes."
            )
        self.tokens, self.documents, done = TAIL.unpack(tail)
        if done != DONE:
            raise FileError(
                f"{path} is truncated or damaged: byte {size - 8} does not begin {DONE.decode()!r}."
            )
        self._ends_at = HEAD.size + -(-self.tokens * self.item // 8) * 8
        if (expected := self._ends_at + 8 * self.documents + TAIL.size) != size:
            raise FileError(
                f"{path} is damaged: {self.tokens} tokens and {self.documents} documents (byte "
                f"{size - TAIL.size}) take {expected} bytes, and the file has {size}."
            )

    @cached_property
    def _data(self) -> Ids:
        """The file's bytes, mapped into memory."""
        _mapped.append(weakref.ref(self))
        if len(_mapped) > MAPPED and (oldest := _mapped.popleft()()):
            oldest._unmap()
        try:
            return np.memmap(self.path, np.uint8, "r").view(np.ndarray)
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {self.path}: {error}.") from None

    def _unmap(self) -> None:
        for name in ("_data", "ids", "ends"):
            self.__dict__.pop(name, None)

    @cached_property
    def ids(self) -> Ids:
        used = self._data[HEAD.size : HEAD.size + self.tokens * self.item]
        return used.view(id_type(self.vocab_size))

    @cached_property
    def ends(self) -> Ids:
        """The ends of the documents; checked when first read."""
        ends = self._data[self._ends_at : -TAIL.size].view("<i8")
        if self._ends_are_checked:
            return ends
        wrong = np.flatnonzero((ends < np.concatenate([[0], ends[:-1]])) | (ends > self.tokens))
        if len(wrong) or (ends[-1] if len(ends) else 0) != self.tokens:
            at = self._ends_at + 8 * int(wrong[0] if len(wrong) else max(0, len(ends) - 1))
            raise FileError(f"{self.path} is damaged: byte {at} is not the end of a document.")
        self._ends_are_checked = True
        return ends

    def raise_bad_id(self, at: int) -> None:
        """Raises the error for an id that is not a token."""
        raise FileError(
            f"{self.path} is damaged: token {at} (byte {HEAD.size + at * self.item}) is {self.ids[at]}, "
            f"and ids go from 0 to {self.vocab_size - 1}."
        )

    def verify(self, sha256: str, block: int = 1 << 24) -> None:
        """Reads the whole file and checks its checksum, every id and every document end."""
        found = hashlib.sha256()
        for start in range(0, len(self._data), block):
            found.update(self._data[start : start + block].data)
        if found.hexdigest() != sha256:
            raise FileError(
                f"{self.path} is damaged: its checksum is {found.hexdigest()[:16]}…, not {sha256[:16]}…. "
                "Run the command that prepared it again: damaged shards are written again."
            )
        _ = self.ends
        for start in range(0, self.tokens, block):
            ids = self.ids[start : start + block]
            if ids.max() >= self.vocab_size:
                self.raise_bad_id(start + int(np.argmax(ids >= self.vocab_size)))
