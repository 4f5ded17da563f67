"""Threads of a step: all, or one where the machine is crowded, found by measuring.

Threads wait for each other after every phase of a step, some microseconds long. Where another program holds a
core, each wait lasts until that program is interrupted, and one thread alone is faster. The number of threads
changes no bit of the result, so both are tried now and then, and the faster one is used.
"""

PROBE_AFTER, MOST_BETWEEN = 48, 768
"""Steps after which the slower number of threads is tried again: twice as many after each trial that changes
nothing, up to the second number."""
MEMORY = 4
"""Steps over which a time is remembered: the smallest of the last few, so that one interruption does not
decide."""


class ThreadChoice:
    """The number of threads of each step, from the seconds that earlier steps took."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {}
        self.faster = 0
        self.left, self.between = PROBE_AFTER, PROBE_AFTER
        """Steps until the next trial, and between trials."""

    def choose(self, most: int) -> int:
        """Returns the number of threads for the next step: `most`, or 1."""
        options = (most, 1) if most > 1 else (1,)
        untried = [count for count in options if len(self.seconds.get(count, ())) < 2]
        if untried:
            return untried[0]
        by_time = sorted(options, key=lambda count: min(self.seconds[count]))
        if by_time[0] != self.faster:
            self.faster, self.left, self.between = by_time[0], PROBE_AFTER, PROBE_AFTER
        self.left -= 1
        if self.left < 0:
            self.between = min(2 * self.between, MOST_BETWEEN)
            self.left = self.between
            return by_time[-1]
        return by_time[0]

    def add(self, threads: int, seconds: float) -> None:
        """Keeps the time of a step."""
        self.seconds[threads] = [*self.seconds.get(threads, ()), seconds][-MEMORY:]
