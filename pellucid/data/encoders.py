"""Several processes that encode at once; the answers come in the order of the questions.

At most `AHEAD` batches for each process are under way, so memory does not grow with the text. The processes
are programs of their own (encoder.py) rather than copies of this one: they are the same on every system, need
nothing of the caller's script, and end by themselves when this process is killed.
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
from pellucid.data.encoder import COUNT, RIGHT_STATUS, WRONG, read_exactly
from pellucid.data.shard import Ids
from pellucid.errors import FileError, TokenError

AHEAD = 2


@dataclass(frozen=True)
class TextBatch:
    """Pieces of text of one part, and where they come from."""

    part: str
    data: bytes
    lengths: list[int]
    whole: bytes
    """For each piece, 1 where a document ends with it."""
    places: list[tuple[str, int]]
    """For each piece, the file and the byte where its document begins."""


@dataclass(frozen=True)
class Encoded:
    batch: TextBatch
    ids: Ids
    lengths: Ids
    """Ids of each piece, the end token included."""


class Encoders:
    """A number of encoding processes; use it in a `with` block."""

    def __init__(self, tokenizer: Path, dtype: np.dtype[Any], count: int) -> None:
        self.dtype, self.count = dtype, count
        path = [str(Path(pellucid.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        # -P: a file of the user's folder must not be taken for a module.
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
            process.kill()  # they hold nothing that could be lost
        for process in self.processes:
            process.wait()
        self._threads.shutdown(wait=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):  # half a batch may wait for a process that is gone
                    cast(BinaryIO, pipe).close()

    def encode(self, batches: Iterable[TextBatch]) -> Iterator[Encoded]:
        """Each batch with its ids, in order."""
        under_way: deque[Future[Encoded]] = deque()
        for batch in batches:
            under_way.append(self._threads.submit(self._ask, batch))
            if len(under_way) > AHEAD * self.count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _ask(self, batch: TextBatch) -> Encoded:
        process = self._idle.get()
        try:
            return self._exchange(process, batch)
        except (EOFError, BrokenPipeError):
            raise FileError(
                f"a process that encodes has ended with code {process.wait()}, perhaps for want of memory. "
                "What is finished is kept: give the same command again, with fewer workers."
            ) from None
        finally:
            self._idle.put(process)

    def _exchange(self, process: "subprocess.Popen[bytes]", batch: TextBatch) -> Encoded:
        stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        count = len(batch.lengths)
        stdin.write(COUNT.pack(count) + np.array(batch.lengths, "<u8").tobytes() + batch.whole)
        stdin.write(batch.data)
        stdin.flush()
        if read_exactly(stdout, 1) != RIGHT_STATUS:
            piece, size = WRONG.unpack(read_exactly(stdout, WRONG.size))
            file, at = batch.places[piece]
            reason = read_exactly(stdout, size).decode()
            raise TokenError(f"{file}, the document that begins at byte {at}: {reason}")
        lengths = np.frombuffer(read_exactly(stdout, 8 * count), "<u8").astype(np.int64)
        data = read_exactly(stdout, int(lengths.sum()) * self.dtype.itemsize)
        return Encoded(batch, np.frombuffer(data, self.dtype), lengths)
