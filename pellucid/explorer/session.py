"""A session: one model's weights held once in float64, and its traces by id, within stated limits."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pellucid.errors import UsageError
from pellucid.explain.trace import Trace
from pellucid.explorer.question import ask
from pellucid.reference.op import Index
from pellucid.workbench.model import Model
from pellucid.workbench.opening import load
from pellucid.workbench.prompts import Prompt
from pellucid.workbench.tracing import read_trace

MOST_TRACES = 8
MOST_BYTES = 4_000_000_000
"""Limits of the traces that a session holds, and of their bytes together: the least recently used is dropped,
and computed again when it is asked for."""


@dataclass(frozen=True)
class CellEdit:
    """A number that the reader gave: the cell of a parameter or of an activation."""

    name: str
    index: Index
    value: float


@dataclass(frozen=True)
class RunRequest:
    """What a trace was computed from; it can be computed again."""

    prompt: Prompt
    target: Prompt | None = None
    backward: bool = False
    update: str | None = None
    lr: float | None = None
    steps: int = 1
    edits: tuple[CellEdit, ...] = ()


@dataclass(eq=False)
class HeldTrace:
    """A trace under its id. `parent` is the trace that one edit turned into this one."""

    id: str
    trace: Trace
    request: RunRequest | None = None
    parent: str | None = None
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `total` computed of a value, kept."""

    @classmethod
    def look_up(cls, session: "Session", id: str | None) -> "HeldTrace":
        """Returns the trace that a question's parameter names; the newest where that is None."""
        return session.get_trace(id)

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """The names of the steps that read each value, in order."""
        found: dict[str, list[str]] = {}
        for name, step in self.trace.tape.steps.items():
            for read in dict.fromkeys(step.inputs):
                found.setdefault(read, []).append(name)
        return found


class Session:
    """Holds a model and its traces, and answers questions about them.

    >>> session = Session.open("abcd")
    >>> session.run(RunRequest("A B")).id
    't1'
    >>> session.ask("next", t=1, count=1)["tokens"][0]["label"]
    'B'
    """

    def __init__(self, model: Model | None = None, trace: Trace | None = None) -> None:
        self.model = model
        self.traces: OrderedDict[str, HeldTrace] = OrderedDict()
        self._count = 0
        if trace is not None:
            self._hold(trace)

    @classmethod
    def open(cls, source: str) -> "Session":
        """Returns the session of a model, of a run's newest model, or of a trace file (.json)."""
        return cls(trace=read_trace(source)) if source.endswith(".json") else cls(load(source))

    def run(self, request: RunRequest) -> HeldTrace:
        """Runs the specification and holds the trace."""
        if self.model is None:
            raise UsageError("a trace is a finished run: open its model to run another prompt.")
        return self._hold(self._trace(request), request)

    def _trace(self, request: RunRequest) -> Trace:
        assert self.model is not None
        more: dict[str, Any] = {"target": request.target, "backward": request.backward}
        if request.update:
            more |= {"update": request.update, "lr": request.lr, "steps": request.steps}
        return self.model.trace(request.prompt, **more)

    def edit(self, held: HeldTrace, edit: CellEdit) -> HeldTrace:
        """Computes the trace again with one more cell given."""
        if held.request is None:
            raise UsageError("a trace is a finished run: open its model to edit a number.")
        request = replace(held.request, edits=(*held.request.edits, edit))
        return self._hold(self._trace(request), request, held.id)

    def _hold(self, trace: Trace, request: RunRequest | None = None, parent: str | None = None) -> HeldTrace:
        self._count += 1
        held = HeldTrace(f"t{self._count}", trace, request, parent)
        self.traces[held.id] = held
        return held

    def get_trace(self, id: str | None) -> HeldTrace:
        """Returns the trace of an id; the newest where that is None."""
        if not self.traces:
            raise UsageError("there is no trace yet: run a prompt first.")
        if id is None:
            return next(reversed(self.traces.values()))
        if id not in self.traces:
            raise UsageError(f"there is no trace {id!r}; there are {', '.join(self.traces)}.")
        return self.traces[id]

    def get_unedited(self, held: HeldTrace) -> HeldTrace:
        """Returns the trace before the first edit: this one where it has none."""
        while held.parent is not None:
            held = self.get_trace(held.parent)
        return held

    def ask(self, question: str, /, **parameters: Any) -> Mapping[str, Any]:
        """Returns the answer to a question, as `question.ask` does."""
        return ask(self, question, parameters)
