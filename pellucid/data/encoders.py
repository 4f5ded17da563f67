"""Worker processes that encode text; results come in the order of the requests.

At most `AHEAD` batches for each worker are in flight, so memory does not grow with the text. The workers are
separate programs rather than forks of this one: they are the same on every system, need nothing of the
caller's script, and end when this process is killed. A worker is

    python -m pellucid.data.encoders TOKENIZER

and reads requests from standard input. A request is a count, then for each piece of text its length in bytes
and whether a document ends with it, then the UTF-8 of all pieces. The response is a status, the number of ids
of each piece and all ids; or the number of the piece that could not be encoded, and why.
"""

import os
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

import numpy as np

from pellucid.base.errors import FileError, PellucidError, TokenError
from pellucid.base.worker import Worker
from pellucid.data.shard import Ids, id_type
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Tokenizer

AHEAD = 2
COUNT, FAILURE = struct.Struct("<Q"), struct.Struct("<QQ")
OK, FAILED = b"\0", b"\1"


@dataclass(frozen=True)
class TextBatch:
    """Pieces of text of one part, and their sources."""

    part: str
    data: bytes
    lengths: list[int]
    is_last: bytes
    """For each piece, 1 where a document ends with it."""
    origins: list[tuple[str, int]]
    """For each piece, the file and the byte where its document begins."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch and its ids."""

    batch: TextBatch
    ids: Ids
    lengths: Ids
    """Number of ids of each piece, the end token included."""


class Encoders:
    """The worker processes; a context manager that ends them."""

    def __init__(self, tokenizer: Path, dtype: np.dtype[Any], count: int) -> None:
        self.dtype, self.count = dtype, count
        self.workers = [Worker("-m", "pellucid.data.encoders", str(tokenizer)) for _ in range(count)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self.workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> "Encoders":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.kill()  # they hold no state
        self._threads.shutdown(wait=True)
        for worker in self.workers:
            worker.close()

    def encode(self, batches: Iterable[TextBatch]) -> Iterator[EncodedBatch]:
        """Yields each batch with its ids, in order."""
        in_flight: deque[Future[EncodedBatch]] = deque()
        for batch in batches:
            in_flight.append(self._threads.submit(self._encode_one, batch))
            if len(in_flight) > AHEAD * self.count:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()

    def _encode_one(self, batch: TextBatch) -> EncodedBatch:
        worker, count = self._idle.get(), len(batch.lengths)
        head = COUNT.pack(count) + np.array(batch.lengths, "<u8").tobytes() + batch.is_last
        try:
            return worker.ask(head + batch.data, lambda stdout: self._read(stdout, batch))
        except EOFError:
            raise FileError(
                f"an encoding process ended with code {worker.process.wait()}, perhaps out of memory. "
                "Finished shards are kept: run the same command again, with fewer workers."
            ) from None
        finally:
            self._idle.put(worker)

    def _read(self, stdout: BinaryIO, batch: TextBatch) -> EncodedBatch:
        if read_exactly(stdout, 1) != OK:
            piece, size = FAILURE.unpack(read_exactly(stdout, FAILURE.size))
            file, at = batch.origins[piece]
            reason = read_exactly(stdout, size).decode()
            raise TokenError(f"{file}, the document that begins at byte {at}: {reason}")
        lengths = np.frombuffer(read_exactly(stdout, 8 * len(batch.lengths)), "<u8").astype(np.int64)
        data = read_exactly(stdout, int(lengths.sum()) * self.dtype.itemsize)
        return EncodedBatch(batch, np.frombuffer(data, self.dtype), lengths)


# ---- the worker


def read_exactly(stream: BinaryIO, size: int) -> bytearray:
    """Returns `size` bytes of a pipe, or raises EOFError where it ends before."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got: int = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        done += got
    return data


def eos_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id that is written after each document."""
    return None if tokenizer.special.eos is None else tokenizer.id_of(tokenizer.special.eos)


def serve(tokenizer: Tokenizer, stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Answers requests until the input ends."""
    dtype = id_type(tokenizer.vocab_size)
    eos = eos_id(tokenizer)
    ending = np.array([] if eos is None else [eos], dtype)
    while True:
        try:
            (count,) = COUNT.unpack(read_exactly(stdin, COUNT.size))
        except EOFError:
            return
        lengths = np.frombuffer(read_exactly(stdin, 8 * count), "<u8").tolist()
        is_last = read_exactly(stdin, count)
        data, start = read_exactly(stdin, sum(lengths)), 0
        found, counts = list[Ids](), list[int]()
        try:
            for i, length in enumerate(lengths):
                ids = tokenizer.encode_array(data[start : start + length].decode()).astype(dtype)
                found += [ids, ending] if is_last[i] else [ids]
                counts.append(len(ids) + len(ending) * is_last[i])
                start += length
        except PellucidError as error:
            reason = str(error).encode()
            stdout.write(FAILED + FAILURE.pack(len(counts), len(reason)) + reason)
        else:
            stdout.write(OK + np.array(counts, "<u8").tobytes())
            stdout.write(np.concatenate(found).tobytes())
        stdout.flush()


if __name__ == "__main__":
    try:
        if cast(BufferedReader, sys.stdin.buffer).peek(
            1
        ):  # nothing where the parent has ended, and perhaps the folder with it
            serve(from_pretrained(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    except (EOFError, BrokenPipeError, FileError):  # it has ended in the middle of a request
        os._exit(1)  # without a flush, which could only fail
