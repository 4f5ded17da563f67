"""How the time of a function grows with the length of what it is given."""

import time
from collections.abc import Callable
from typing import Any

CLOCK_SECONDS = 0.001
"""What takes less is not measured well, and counts as this much."""


def measure(run: Callable[[], Any], times: int = 3) -> float:
    """Returns the least seconds of this process's processor that a call takes."""
    found = []
    for _ in range(times):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found)


def assert_not_quadratic(make: Callable[[int], Callable[[], Any]], n: int) -> None:
    """Asserts that a call for 4 n takes less than 10 times the time of one for n; 16 would be quadratic.
    `make` returns the call for a length."""
    short, long = measure(make(n)), measure(make(4 * n), 1)
    if long > 10 * max(short, CLOCK_SECONDS):
        long = min(long, measure(make(4 * n)))
    assert long < 10 * max(short, CLOCK_SECONDS), (short, long)
