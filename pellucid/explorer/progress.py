"""The progress of a run: its steps stand on the tapes that it makes, and can be counted meanwhile."""

import time
from collections.abc import Callable
from typing import Any

from pellucid.reference.tape import Tape

PHASES = {"fwd": "forward pass", "bwd": "backward pass", "upd": "update"}


class TraceProgress:
    """A run that is being computed, on the tokens `ids`; `steps` is how many steps it will have."""

    def __init__(self, ids: list[int], steps: int) -> None:
        self.ids, self.steps, self.began = ids, steps, time.monotonic()
        self._tapes: list[Tape] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def step(self) -> int:
        """How many steps have been computed."""
        return sum(len(tape.steps) for tape in self._tapes)

    @property
    def what(self) -> str:
        """What is being computed; "" before the first step, while weights are read."""
        return PHASES[self._tapes[-1].phase] if self.step else ""

    def watch(self, make_tape: Callable[..., Tape]) -> Callable[..., Tape]:
        """Returns the same function; the steps of what it makes are counted."""

        def make(*arguments: Any) -> Tape:
            self._tapes.append(make_tape(*arguments))
            return self._tapes[-1]

        return make
