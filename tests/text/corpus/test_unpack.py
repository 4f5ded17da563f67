"""Packed files as streams of bytes, whole or with an error that says how far they were."""

import builtins
import gzip
import importlib
import io
import lzma
import os
import sys
import threading
import tracemalloc
import types
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.text.corpus import unpack
from pellucid.text.corpus.unpack import chunks, without_bom

TEXT = "".join(f"line {i}: blåbær 😀\n" for i in range(3000)).encode()


class _Frame:
    """A stand-in for zstandard's decompressobj, with the same interface over zlib."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj()

    def decompress(self, data: bytes) -> bytes:
        try:
            return self._zlib.decompress(data)
        except zlib.error as error:
            raise _ZstdError(error) from None

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


class _ZstdError(Exception):
    pass


def zstd(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], bytes]:
    """The real package where it is installed, else a stand-in; the compressor of either."""
    try:
        return importlib.import_module("zstandard").ZstdCompressor().compress  # type: ignore[no-any-return]
    except ImportError:
        fake = types.SimpleNamespace(
            ZstdDecompressor=lambda: types.SimpleNamespace(decompressobj=_Frame), ZstdError=_ZstdError
        )
        monkeypatch.setitem(sys.modules, "zstandard", fake)  # type: ignore[arg-type]
        return zlib.compress


@pytest.fixture(params=["gz", "xz", "zst"])
def packed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Callable[[bytes], bytes]]:
    packers = {"gz": gzip.compress, "xz": lzma.compress}
    return request.param, packers.get(request.param) or zstd(monkeypatch)


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_a_packed_file_gives_the_bytes_that_were_packed(
    packed: tuple[str, Callable[[bytes], bytes]], size: int, tmp_path: Path
) -> None:
    ending, pack = packed
    file = tmp_path / f"a.txt.{ending}"
    file.write_bytes(pack(TEXT))
    assert b"".join(chunks(str(file), size)) == TEXT


def test_files_packed_apart_and_joined_are_read_to_the_end(
    packed: tuple[str, Callable[[bytes], bytes]], tmp_path: Path
) -> None:
    ending, pack = packed
    file = tmp_path / f"a.txt.{ending}"
    file.write_bytes(pack(b"one\n") + pack(TEXT) + pack(b"three\n"))
    assert b"".join(chunks(str(file), 1 << 20)) == b"one\n" + TEXT + b"three\n"


def test_a_packed_file_cut_anywhere_is_an_error_that_says_how_far_it_was(
    packed: tuple[str, Callable[[bytes], bytes]], tmp_path: Path
) -> None:
    ending, pack = packed
    file = tmp_path / f"a.txt.{ending}"
    data = pack(TEXT)
    for length in [*range(1, 40), *range(40, len(data), 97), *range(len(data) - 12, len(data))]:
        file.write_bytes(data[:length])
        given: list[bytes] = []
        with pytest.raises(FileError, match=rf"a\.txt\.{ending} (is cut short|is damaged)") as error:
            given.extend(chunks(str(file), 1 << 20))
        assert TEXT.startswith(b"".join(given))
        assert f"byte {len(b''.join(given))} of " in str(error.value)


def test_a_damaged_file_is_an_error_that_says_where(
    packed: tuple[str, Callable[[bytes], bytes]], tmp_path: Path
) -> None:
    ending, _ = packed
    file = tmp_path / f"a.txt.{ending}"
    file.write_bytes(b"this was never packed, whatever its name says")
    with pytest.raises(FileError, match=rf"a\.txt\.{ending}.*byte 0"):
        list(chunks(str(file), 1 << 20))


def test_without_the_zstandard_package_a_zst_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # type: ignore[arg-type]
    file = tmp_path / "a.txt.zst"
    file.write_bytes(b"")
    with pytest.raises(FileError, match=r"a\.txt\.zst.*pip install zstandard"):
        list(chunks(str(file), 1 << 20))


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_a_small_file_that_unpacks_into_a_huge_one_takes_no_more_memory(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"bomb.txt.{ending}"
    file.write_bytes({"gz": gzip.compress, "xz": lzma.compress}[ending](bytes(30_000_000)))
    tracemalloc.start()
    assert sum(map(len, chunks(str(file), 1 << 16))) == 30_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # xz keeps a dictionary of 8 MiB


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"gone\.txt at byte 0: No such file"):
        list(chunks(str(tmp_path / "gone.txt"), 10))

    class Failing(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 6:
                raise OSError(5, "Input/output error")
            return super().read1(size)

    monkeypatch.setattr(builtins, "open", lambda *_: Failing(b"abcdefghi"))
    with pytest.raises(FileError, match=r"a\.txt at byte 6: Input/output error"):
        list(chunks("a.txt", 3))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_byte_order_mark_is_dropped_at_the_start_alone(size: int) -> None:
    bom = "\ufeff".encode()

    def cut(data: bytes) -> list[bytes]:
        return [data[i : i + size] for i in range(0, len(data), size)]

    for data, dropped in ((b"", 0), (b"a", 0), (bom, 3), (bom[:2], 0), (bom + b"a" + bom, 3), (bom + bom, 3)):
        stream, count = without_bom(iter(cut(data)))
        assert (b"".join(stream), count) == (data[dropped:], dropped)


def test_a_pipe_that_nothing_writes_into_is_refused_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=r"is a pipe, and for 0\.1 s no program has opened it to write"):
        list(chunks(str(tmp_path / "pipe"), 100))
    assert not any(thread.name == "pellucid-pipe" for thread in threading.enumerate())


def test_a_pipe_is_read_as_its_writer_fills_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"line\n" * 9000,))
    writer.start()
    assert b"".join(chunks(str(tmp_path / "pipe"), 1000)) == b"line\n" * 9000
    writer.join()
