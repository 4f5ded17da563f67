"""The data loader: this rank's rows of every batch, without end, prefetched by a thread.

    loader = DataLoader(Windows(TokenFolder("books.tokens")["train"], length=256), batch_size=32)
    for batch in loader:
        …batch.ids, batch.targets…

The batches depend on the rows alone: neither on how many are prefetched, nor on interruptions. A batch over
all ranks is the next `batch_size` × `world_size` rows, of which rank r gets the r-th share.
"""

import threading
from collections.abc import Iterator, Mapping
from queue import Empty, Full, Queue

from pellucid.base.errors import ConfigError
from pellucid.data.rows import Batch, Rows

FORMAT = 1
POLL = 0.1
"""Seconds after which a waiting thread checks whether it has been stopped."""


class DataLoader:
    def __init__(
        self, rows: Rows, batch_size: int, rank: int = 0, world_size: int = 1, prefetch: int = 2
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be 1 or more.")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank={rank} must be from 0 to {world_size - 1}.")
        if prefetch < 0:
            raise ConfigError(f"prefetch={prefetch} must be 0 (none) or more batches.")
        self.rows, self.prefetch = rows, prefetch
        self.count = batch_size * world_size
        self.local = slice(rank * batch_size, (rank + 1) * batch_size)
        self._state = rows.state()
        self._thread: _PrefetchThread | None = None
        self._peeked: tuple[Batch, dict[str, int]] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch, self._state = self._peeked or self._fetch()
        self._peeked = None
        return batch

    def peek(self) -> Batch:
        """Returns the next batch without advancing."""
        self._peeked = self._peeked or self._fetch()
        return self._peeked[0]

    def _fetch(self) -> "tuple[Batch, dict[str, int]]":
        if not self.prefetch:
            try:
                return self._make()
            except BaseException:
                self.rows.restore(self._state)  # as with a thread, a second call gives the same answer
                raise
        if self._thread is None:
            self._thread = _PrefetchThread(self)
        return self._thread.next()

    def _make(self) -> "tuple[Batch, dict[str, int]]":
        return self.rows.take(self.count, self.local), self.rows.state()

    def state_dict(self) -> dict[str, int]:
        """Returns the position of the reader (not of the thread, which is ahead): a few integers."""
        identity = {f"is.{key}": value for key, value in self._identity().items()}
        return {"format": FORMAT} | identity | {f"at.{key}": value for key, value in self._state.items()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues from a state of the same rows; the number of ranks may differ."""
        if state.get("format") != FORMAT:
            raise ConfigError(
                f"the data loader's state has format {state.get('format')!r}; this version reads {FORMAT}."
            )
        for key, value in self._identity().items():
            if state.get(f"is.{key}") != value:
                raise ConfigError(
                    f"the data loader's state is of other data: its {key} was {state.get(f'is.{key}')}, and "
                    f"is {value} here. Open the same token files with the same settings."
                )
        wanted = self.rows.state()
        at = {key: state.get(f"at.{key}") for key in wanted}
        if wrong := [key for key, value in at.items() if type(value) is not int or value < 0]:
            raise ConfigError(f"the data loader's state is damaged: {wrong[0]!r} is {at[wrong[0]]!r}.")
        self.close()
        self._state = {key: value for key, value in at.items() if value is not None}
        self.rows.restore(self._state)

    def _identity(self) -> dict[str, int]:
        return self.rows.identity() | {"rows_in_all": self.count}

    def close(self) -> None:
        """Stops the thread; prefetched batches are made again when they are read."""
        if self._thread is not None:
            self._thread.stop()
        if self._thread is not None or self._peeked is not None:
            self.rows.restore(self._state)
        self._thread = self._peeked = None

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def begins_with_bos(state: Mapping[str, int]) -> bool:
    """Returns whether the rows of a state are documents that each begin with a bos token, as a text that such
    a model reads then has to: generated ones always do.

    >>> begins_with_bos({"is.bos": 0}), begins_with_bos({"is.bos": -1}), begins_with_bos({"is.made_of": 7})
    (True, False, True)
    """
    own = {key: value for key, value in state.items() if key.startswith("is.")}
    return any(
        key.endswith(".made_of") or (key.endswith(".bos") and value >= 0) for key, value in own.items()
    )


class _PrefetchThread:
    """A thread that makes batches while the reader works; it passes an error on in place of the batch."""

    def __init__(self, loader: DataLoader) -> None:
        self._queue: Queue[tuple[Batch, dict[str, int]] | BaseException] = Queue(loader.prefetch)
        self._make, self._stopped = loader._make, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pellucid-loader")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            result: tuple[Batch, dict[str, int]] | BaseException
            try:
                result = self._make()
            except BaseException as error:
                result = error
            while not self._stopped.is_set():
                try:
                    self._queue.put(result, timeout=POLL)
                    break
                except Full:
                    continue
            if isinstance(result, BaseException):
                return

    def next(self) -> tuple[Batch, dict[str, int]]:
        result = self._queue.get()
        if isinstance(result, BaseException):
            self._queue.put(result)  # a second call gives the same answer
            raise result
        return result

    def stop(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except Empty:
                self._thread.join(POLL)
