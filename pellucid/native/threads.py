"""How many threads a step takes: all, or one where the machine is crowded, found by measuring.

Threads wait for each other after every phase of a step, some microseconds long. Where another program holds a
core, each wait lasts until that program is interrupted, and one thread alone is faster. The number of threads
changes no bit of the result, so both are tried now and then, and the faster one is used.
"""

import math

PROBE_EVERY = 48
"""Steps after which the slower number of threads is tried again."""
MEMORY = 4
"""Steps over which a time is remembered: the smallest of the last few, so that one interruption is no
verdict."""


class ThreadChoice:
    """The number of threads of each step, from the seconds that earlier steps took."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {}
        self.steps = 0

    def choose(self, most: int) -> int:
        """Returns the number of threads for the next step: `most`, or 1."""
        self.steps += 1
        options = (most, 1) if most > 1 else (1,)
        untried = [count for count in options if len(self.seconds.get(count, ())) < 2]
        if untried:
            return untried[0]
        by_time = sorted(options, key=lambda count: min(self.seconds[count]))
        return by_time[-1] if self.steps % PROBE_EVERY < 2 else by_time[0]

    def add(self, threads: int, seconds: float) -> None:
        """Keeps the time of a step."""
        if math.isfinite(seconds):
            self.seconds[threads] = [*self.seconds.get(threads, ()), seconds][-MEMORY:]
