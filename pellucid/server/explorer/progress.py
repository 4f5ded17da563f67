"""The progress of a run: its steps stand on the tapes that it makes, and can be counted meanwhile."""

import time
from collections.abc import Callable
from typing import Any

from pellucid.explanation.reuse import ReusingTape
from pellucid.reference.tape import Tape

PHASES = {"fwd": "forward pass", "bwd": "backward pass", "upd": "update"}


class TraceProgress:
    """A run that is being computed, on the tokens `ids`; `steps` is how many steps it will have."""

    def __init__(self, ids: list[int], steps: int) -> None:
        self.ids, self.steps = ids, steps
        self._began = self._computes_since = time.monotonic()
        self._processor_since = time.thread_time()
        self._tapes: list[Tape] = []

    def begin_computing(self) -> None:
        """Says that the weights have been read."""
        self._computes_since, self._processor_since = time.monotonic(), time.thread_time()

    def compute_slowdown(self) -> float:
        """Returns seconds by the clock per second of the processor: above 1 where other work is running.
        The thread that computes calls it."""
        used = time.thread_time() - self._processor_since
        return max(1.0, self.seconds / used) if used > 0.05 else 1.0

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds of computing, without the time in which weights were read."""
        return time.monotonic() - self._computes_since

    @property
    def step(self) -> int:
        """The number of steps that have been computed."""
        return sum(len(tape.steps) for tape in self._tapes)

    @property
    def steps_run(self) -> int:
        """The number of them that were run, and not taken over from another run."""
        return sum(
            tape.steps_run if isinstance(tape, ReusingTape) else len(tape.steps) for tape in self._tapes
        )

    @property
    def what(self) -> str:
        """The value that is being computed; "" before the first step, while weights are read."""
        return PHASES[self._tapes[-1].phase] if self.step else ""

    def watch(self, make_tape: Callable[..., Tape]) -> Callable[..., Tape]:
        """Returns the same function; the steps of what it makes are counted."""

        def make(*arguments: Any) -> Tape:
            self._tapes.append(make_tape(*arguments))
            return self._tapes[-1]

        return make
