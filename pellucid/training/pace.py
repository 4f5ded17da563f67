"""The pace of a run that is to take some minutes: how many steps it still has time for.

    pace = Pace(minutes=5, spent=0.0, step=0)   # for a new run
    if pace.is_due(step):
        steps = pace.fit(step, steps, planned)

A plan's steps are a prediction from a speed that was measured beforehand. What the clock decides here is
written into the recipe (`extensions`), so that every step that is made again follows from the recipe alone.
"""

import time

SHARE, LEAST = 0.1, 0.01
"""From one look at the clock to the next: this fraction of the time that is left, and at least this one of
all of it."""
TOO_MANY, TOO_FEW = 0.05, 0.25
"""Steps are kept while at most these fractions of those that are left are too many for the time or would fit
beside them, or steps of LEAST of all the time."""


class Pace:
    def __init__(self, minutes: float, spent: float = 0.0, step: int = 0) -> None:
        """Begins to measure at a step, after `spent` seconds of training; 0 minutes: without a limit."""
        self._limit, self._spent, self._step = 60 * minutes, spent, step
        self._began, self._first, self._next = time.monotonic(), 0.0, 0.0
        self._set_next()

    def _read_clock(self) -> float:
        """Returns the seconds of the run so far, evaluations and saving among them."""
        return self._spent + time.monotonic() - self._began

    def _set_next(self) -> None:
        elapsed = self._read_clock()
        self._next = elapsed + max(SHARE * (self._limit - elapsed), LEAST * self._limit)

    def is_due(self, step: int) -> bool:
        """Returns whether it is time to compare the steps that are left with the time that is left; call it
        at every step."""
        if not self._limit or step <= self._step:
            return False
        elapsed = self._read_clock()
        if not self._first:  # the first step of a process alone compiles: the speed is that of the others
            self._first, self._step = elapsed, step
            return False
        return elapsed >= self._next

    def fit(self, step: int, steps: int, planned: int) -> int:
        """Returns how many steps the run is to have at the speed so far: `steps` where that is about right,
        `planned` at most, and one more where its time has passed."""
        elapsed = self._read_clock()
        self._set_next()
        per_step = max(elapsed - self._first, 1e-9) / (step - self._step)
        fitting = min(planned, step + max(1, int((self._limit - elapsed) / per_step)))
        share = TOO_MANY if fitting < steps else TOO_FEW
        tolerance = max(share * (steps - step), LEAST * self._limit / per_step)
        return steps if abs(fitting - steps) <= tolerance else fitting
