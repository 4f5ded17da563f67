"""Recorded steps: the launches of a step as one CUDA graph, for each number of tokens and of splits.

A graph is recorded when it is first needed, and the one that was used longest ago is dropped when there are
too many.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from pellucid.engine.gpu.captured_module import capture
from pellucid.engine.gpu.step import DecodeStep

log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds after which a recording says what takes so long."""
MOST_GRAPHS = 32
"""Each holds its launches, and what drawing needs, on the device."""


@cache
def say_compiling() -> None:
    """Logs, once, why the first tokens take long."""
    log.warning("compiling the GPU decoder for this model, once (Triton keeps it) …")


class GraphKey(NamedTuple):
    """What a recorded step depends on."""

    texts: int
    splits: int
    is_drawn: bool = False
    reads_prompts: bool = False
    covered: int = 0
    """Positions of the tables that it reads; when these grow, steps are recorded anew."""


class StepGraph:
    """A recorded step; without a GPU, where Triton's interpreter runs the kernels, the step itself."""

    def __init__(self, step: DecodeStep) -> None:
        self.step = step
        self.graph: Any = None
        if step.buffers.x.is_cuda:
            self._record()

    def _record(self) -> None:
        """Records the launches. Kernels are compiled and loaded first, with every text ended, so that no
        cache is written; the tokens of the texts are embedded again after it."""
        slots = self.step.buffers.slots
        held = slots.clone()
        slots.fill_(-1)
        notice = threading.Timer(PATIENCE, say_compiling)
        notice.start()
        try:
            self.step.run(is_dependent=True)
        finally:
            notice.cancel()
        self.graph, _ = capture(lambda: self.step.run(is_dependent=True))
        slots.copy_(held)
        self.step.embed()

    def run(self) -> None:
        """Runs the step on the tokens that are embedded."""
        if self.graph is None:
            self.step.run()
        else:
            self.graph.replay()


class Graphs:
    """The recorded steps of one decoder and cache."""

    def __init__(self, make: Callable[[GraphKey], DecodeStep], most: int = MOST_GRAPHS) -> None:
        self._make, self._most = make, most
        self._held: OrderedDict[GraphKey, StepGraph] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: GraphKey) -> bool:
        return key in self._held

    def find(self, key: GraphKey) -> StepGraph:
        """Returns the recorded step, which is recorded now if there is none."""
        if key not in self._held:
            while len(self._held) >= self._most:
                self._held.popitem(last=False)
            self._held[key] = StepGraph(self._make(key))
        self._held.move_to_end(key)
        return self._held[key]
