"""Restarts of a process that ends by itself: how many, and how often."""

import time
from collections.abc import Callable

FORGET_SECONDS = 3600.0
"""An end is forgotten after an hour: a process that runs for months may meet a rare fault twice."""


class RestartLimit:
    """Allows some restarts within an hour, and none beyond."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self._restarts: list[float] = []

    def allow(self) -> bool:
        """Returns whether a process that ended now may be started again; the restart is counted where it
        may."""
        now = self._clock()
        self._restarts = [moment for moment in self._restarts if now - moment < FORGET_SECONDS]
        if len(self._restarts) >= self.most:
            return False
        self._restarts.append(now)
        return True
