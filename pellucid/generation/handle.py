"""A request in the engine, as its caller holds it: tokens as they come, the result, and cancelling."""

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.generation.request import Completion, Request, Token
from pellucid.generation.samplers.own_probabilities import TopLogprobs
from pellucid.generation.strategies.sample import Sample

if TYPE_CHECKING:  # the engine makes handles
    from pellucid.generation.scheduler import Engine

MOST_UNREAD = 64
"""Tokens that a stream holds for its reader; with as many, its request waits until some are read."""


class Handle:
    """One request in the engine: iterate over its tokens as they come, or wait for its result."""

    def __init__(self, engine: "Engine", strategy: Sample, streams: bool) -> None:
        self._engine, self.strategy, self._streams = engine, strategy, streams
        self._unread: deque[Token] = deque()
        self._full_since: float | None = None
        """When the last token was read or added, while there are too many for another."""
        self.error: Exception | None = None
        """What ended the request before its texts were complete."""
        self.is_done = False
        self.is_cancelled = False
        self.needs_host = False
        """Whether a device could not choose one of its tokens, so that the host does."""

    @property
    def request(self) -> Request:
        return self.strategy.job.request

    @property
    def seed(self) -> int:
        """The seed that is used, also where the request has none."""
        return self.strategy.job.chain.seed

    @property
    def prompt_logprobs(self) -> list[float]:
        """The log-probability of every token of the prompt but the first, where the request asked for it."""
        return self.strategy.prompt_logprobs

    @property
    def prompt_tops(self) -> list[TopLogprobs]:
        """The most probable tokens at each of those places, where the request asked for them."""
        return self.strategy.prompt_tops

    def __iter__(self) -> Iterator[Token]:
        """Yields the tokens of all choices as they are chosen; at the end it raises the request's error."""
        while (token := self._next()) is not None:
            yield token
        if self.error is not None:
            raise self.error

    def _next(self) -> Token | None:
        while True:
            with self._engine.changed:
                if self._unread:
                    token = self._unread.popleft()
                    self._full_since = time.monotonic() if len(self._unread) >= MOST_UNREAD else None
                    self._engine.notify()  # the request may go on
                    return token
                if self.is_done:
                    return None
            self._engine.wait(self)

    def take(self) -> list[Token]:
        """Returns the tokens that are there and were not read yet; it neither waits nor runs a step, as a
        caller of `Engine.step` wants it."""
        with self._engine.changed:
            tokens = list(self._unread)
            self._unread.clear()
            if self._full_since is not None:
                self._full_since = None
                self._engine.notify()
        return tokens

    def result(self) -> list[Completion]:
        """Waits until the request is done, and returns its choices; raises the request's error."""
        for _ in self:
            pass
        return self.strategy.completions()

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def cancel(self) -> None:
        """Ends the request; what is generated so far remains its result."""
        self._engine.cancel(self)

    @property
    def waits_for_reader(self) -> bool:
        """Returns whether its reader is behind; only where the engine runs by itself, since otherwise a
        reader who waits for another request would wait for ever."""
        return self._full_since is not None and self._engine.runs_by_itself

    @property
    def is_abandoned(self) -> bool:
        """Returns whether its reader has read nothing for longer than the engine's patience."""
        if self._full_since is None:
            return False
        return self.waits_for_reader and time.monotonic() - self._full_since > self._engine.patience

    def emit(self, token: Token) -> None:
        """Adds a token for the reader."""
        if not self._streams:
            return
        self._unread.append(token)
        if len(self._unread) == MOST_UNREAD:
            self._full_since = time.monotonic()
