"""A pool of worker processes that encode; results come in the order of the requests.

At most `AHEAD` batches for each worker are in flight, so memory does not grow with the text. The workers are
separate programs (encoder.py) rather than forks of this one: they are the same on every system, need nothing
of the caller's script, and end when this process is killed.
"""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

import numpy as np

import pellucid
from pellucid.data.encoder import COUNT, FAILURE, OK, read_exactly
from pellucid.data.shard import Ids
from pellucid.errors import FileError, TokenError

AHEAD = 2


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
        path = [str(Path(pellucid.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        # -P: a file of the current folder must not be imported as a module.
        command = [sys.executable, "-P", "-m", "pellucid.data.encoder", str(tokenizer)]
        self.processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
            )
            for _ in range(count)
        ]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self.processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> "Encoders":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()  # they hold no state
        for process in self.processes:
            process.wait()
        self._threads.shutdown(wait=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):  # part of a batch may still be buffered
                    cast(BinaryIO, pipe).close()

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
        process = self._idle.get()
        try:
            return self._exchange(process, batch)
        except (EOFError, BrokenPipeError):
            raise FileError(
                f"an encoding process ended with code {process.wait()}, perhaps out of memory. Finished "
                "shards are kept: run the same command again, with fewer workers."
            ) from None
        finally:
            self._idle.put(process)

    def _exchange(self, process: "subprocess.Popen[bytes]", batch: TextBatch) -> EncodedBatch:
        stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        count = len(batch.lengths)
        stdin.write(COUNT.pack(count) + np.array(batch.lengths, "<u8").tobytes() + batch.is_last)
        stdin.write(batch.data)
        stdin.flush()
        if read_exactly(stdout, 1) != OK:
            piece, size = FAILURE.unpack(read_exactly(stdout, FAILURE.size))
            file, at = batch.origins[piece]
            reason = read_exactly(stdout, size).decode()
            raise TokenError(f"{file}, the document that begins at byte {at}: {reason}")
        lengths = np.frombuffer(read_exactly(stdout, 8 * count), "<u8").astype(np.int64)
        data = read_exactly(stdout, int(lengths.sum()) * self.dtype.itemsize)
        return EncodedBatch(batch, np.frombuffer(data, self.dtype), lengths)
