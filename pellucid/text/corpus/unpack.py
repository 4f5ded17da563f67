"""The bytes of a file as a stream of chunks, decompressed on the way.

Memory is that of one chunk: a small file that unpacks into a huge one is as harmless as the huge one.
"""

import contextlib
import gzip
import importlib
import itertools
import lzma
import os
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Any, BinaryIO

from pellucid.base.errors import FileError, file_error
from pellucid.text.corpus.sources import STDIN, display_name

BOM = b"\xef\xbb\xbf"
SECONDS = 10.0
"""The longest that a pipe may be without a program that writes into it."""


def chunks(file: str, size: int) -> Iterator[bytes]:
    """Yields the decompressed bytes of a file; an error is a FileError that names the offset."""
    name, offset = display_name(file), 0
    unpack = next((unpack for ending, unpack in UNPACKERS.items() if file.endswith(ending)), _plain)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if file == STDIN else open_text(file) as raw:
            for chunk in unpack(raw, size):
                yield chunk
                offset += len(chunk)
    except EOFError:
        raise FileError(f"{name} is cut short: its packed data ends at byte {offset} of the text.") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, _ZstdError) as error:
        raise FileError(f"{name} is damaged at byte {offset} of its text: {error}.") from None
    except OSError as error:
        raise file_error("read", f"{name} at byte {offset}", error) from None


def without_bom(stream: Iterator[bytes]) -> tuple[Iterator[bytes], int]:
    """Returns the stream without its byte-order mark, and the number of bytes of the mark."""
    head = b""
    while len(head) < len(BOM) and (chunk := next(stream, b"")):
        head += chunk
    rest = head.removeprefix(BOM)
    return itertools.chain([rest] if rest else [], stream), len(head) - len(rest)


def open_text(file: str) -> BinaryIO:
    """Opens a file; of a pipe that no program writes into, raises after a while, where `open` would wait."""
    if not (os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode)):
        return open(file, "rb")
    opened = Queue[BinaryIO | OSError]()

    def wait_for_writer() -> None:
        try:
            opened.put(open(file, "rb"))  # noqa: SIM115 - closed by who gets it
        except OSError as error:
            opened.put(error)

    waiting = threading.Thread(target=wait_for_writer, daemon=True, name="pellucid-pipe")
    waiting.start()
    try:
        found = opened.get(timeout=SECONDS)
    except Empty:
        with contextlib.suppress(OSError):
            os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))  # lets the thread go
            waiting.join(1.0)
            _close(opened)
        raise FileError(
            f"{file} is a pipe, and for {SECONDS:g} s no program has opened it to write: start that "
            "one first, or name a file."
        ) from None
    if isinstance(found, OSError):
        raise found
    return found


def _close(opened: Queue[BinaryIO | OSError]) -> None:
    with contextlib.suppress(Empty):
        found = opened.get_nowait()
        if not isinstance(found, OSError):
            found.close()


def _plain(raw: Any, size: int) -> Iterator[bytes]:
    # read1 gives what there is: a pipe is read as it fills, and no byte before an error is lost.
    while chunk := raw.read1(size):
        yield chunk


def _gz(raw: BinaryIO, size: int) -> Iterator[bytes]:
    return _plain(gzip.GzipFile(fileobj=raw), size)


def _xz(raw: BinaryIO, size: int) -> Iterator[bytes]:
    return _plain(lzma.LZMAFile(raw), size)


class _ZstdError(Exception):
    pass


def _zst(raw: BinaryIO, size: int) -> Iterator[bytes]:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise FileError(f"reading {raw.name} needs the package zstandard: pip install zstandard") from None
    # Its stream reader takes a truncated file for a whole one, so the frames are fed here.
    begun, packed = None, b""
    # Four bytes of zstd can stand for 128 KiB: small bites keep what one of them unpacks to small.
    while packed := packed or raw.read(min(size, 1024)):
        begun = begun or zstandard.ZstdDecompressor().decompressobj()
        try:
            text = begun.decompress(packed)
        except zstandard.ZstdError as error:
            raise _ZstdError(str(error)) from None
        packed = begun.unused_data
        if begun.eof:
            begun = None
        if text:
            yield text
    if begun:
        raise EOFError


UNPACKERS: dict[str, Callable[[BinaryIO, int], Iterator[bytes]]] = {".gz": _gz, ".xz": _xz, ".zst": _zst}
