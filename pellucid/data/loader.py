"""Batches without end: this rank's rows of every batch, made ahead of time by a thread.

    loader = Loader(Windows(TokenFolder("books.tokens")["train"], length=256), batch_size=32)
    for batch in loader:
        …batch.ids, batch.targets…

The batches depend on the rows alone: not on how many are made ahead, nor on interruptions. A batch over
all ranks is the next `batch_size` × `world_size` rows, of which rank r gets the r-th share.
"""

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue

from pellucid.data.rows import Batch, Rows
from pellucid.errors import ConfigError

FORMAT = 1
POLL = 0.1
"""Seconds after which a waiting thread looks whether it is still wanted."""


class Loader:
    def __init__(
        self, rows: Rows, batch_size: int, rank: int = 0, world_size: int = 1, prefetch: int = 2
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} holds nothing: use 1 or more.")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank {rank} is none of {world_size}: ranks go from 0 to {world_size - 1}.")
        if prefetch < 0:
            raise ConfigError(f"prefetch={prefetch} cannot be: use 0 for none, or how many batches ahead.")
        self.rows, self.prefetch = rows, prefetch
        self.count = batch_size * world_size
        self.mine = slice(rank * batch_size, (rank + 1) * batch_size)
        self._state = rows.state()
        self._ahead: _Ahead | None = None
        self._peeked: tuple[Batch, dict[str, int]] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch, self._state = self._peeked or self._taken()
        self._peeked = None
        return batch

    def peek(self) -> Batch:
        """The next batch, which stays the next."""
        self._peeked = self._peeked or self._taken()
        return self._peeked[0]

    def _taken(self) -> "tuple[Batch, dict[str, int]]":
        if not self.prefetch:
            try:
                return self._made()
            except BaseException:
                self.rows.restore(self._state)  # as with a thread, asking again gives the same answer
                raise
        if self._ahead is None:
            self._ahead = _Ahead(self)
        return self._ahead.next()

    def _made(self) -> "tuple[Batch, dict[str, int]]":
        return self.rows.take(self.count, self.mine), self.rows.state()

    def state_dict(self) -> dict[str, int]:
        """Where the reader stands (not the thread, which is ahead): a few integers."""
        identity = {f"is.{key}": value for key, value in self._identity().items()}
        return {"format": FORMAT} | identity | {f"at.{key}": value for key, value in self._state.items()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where a state was taken, with the same rows; another number of ranks may share the batch."""
        if state.get("format") != FORMAT:
            raise ConfigError(
                f"a loader's state of format {state.get('format')!r}; this version reads {FORMAT}."
            )
        for key, value in self._identity().items():
            if state.get(f"is.{key}") != value:
                raise ConfigError(
                    f"this state belongs to other batches: {key} was {state.get(f'is.{key}')}, and is "
                    f"{value} here. Open the same token files with the same settings."
                )
        wanted = self.rows.state()
        at = {key: state.get(f"at.{key}") for key in wanted}
        if wrong := [key for key, value in at.items() if type(value) is not int or value < 0]:
            raise ConfigError(f"this state does not say where it stands: {wrong[0]!r} is {at[wrong[0]]!r}.")
        self.close()
        self._state = {key: value for key, value in at.items() if value is not None}
        self.rows.restore(self._state)

    def _identity(self) -> dict[str, int]:
        return self.rows.identity() | {"rows_in_all": self.count}

    def close(self) -> None:
        """Stop the thread; what it made ahead is made again when it is asked for."""
        if self._ahead is not None:
            self._ahead.stop()
        if self._ahead is not None or self._peeked is not None:
            self.rows.restore(self._state)
        self._ahead = self._peeked = None

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ahead:
    """A thread that makes batches while the reader works; an error comes out where its batch would have."""

    def __init__(self, loader: Loader) -> None:
        self._queue: Queue[tuple[Batch, dict[str, int]] | BaseException] = Queue(loader.prefetch)
        self._made, self._stopped = loader._made, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pellucid-loader")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            made: tuple[Batch, dict[str, int]] | BaseException
            try:
                made = self._made()
            except BaseException as error:
                made = error
            while not self._stopped.is_set():
                try:
                    self._queue.put(made, timeout=POLL)
                    break
                except Full:
                    continue
            if isinstance(made, BaseException):
                return

    def next(self) -> tuple[Batch, dict[str, int]]:
        made = self._queue.get()
        if isinstance(made, BaseException):
            self._queue.put(made)  # asking again gives the same answer
            raise made
        return made

    def stop(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except Empty:
                self._thread.join(POLL)
