"""A trace under its id: what it was computed from, and what is known of it after it has been dropped."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.explanation.trace import Trace
from pellucid.server.explorer.editing import CellEdit, read_described_edits
from pellucid.text.prompts import Prompt

if TYPE_CHECKING:
    from pellucid.server.explorer.session import Session


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
    seconds: float = 0.0
    """How long it was computed."""
    steps_run: int = 0
    """How many of its steps were run; the others were taken over from another trace."""
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

    @cached_property
    def buffers(self) -> dict[int, int]:
        """The bytes of each buffer that its values lie in, by identity."""
        return find_buffers(self.trace.tape.values.values())

    @cached_property
    def summary(self) -> "TraceSummary":
        """The facts that are known of it after it has been dropped."""
        tape, run = self.trace.tape, self.trace.run
        updates = 0
        while f"probs@{updates + 1}" in tape.values:
            updates += 1
        return TraceSummary(
            self.id,
            self.request,
            self.parent,
            next(iter(self.trace.ids), []),
            len(self.trace.ids),
            any(role == "grad" for role in tape.roles.values()),
            updates,
            len(tape.values),
            len(tape.steps),
            str(run.get("path", "reference")),
            read_described_edits(self.trace),
        )


@dataclass(frozen=True)
class TraceSummary:
    """What the session keeps of every trace, held or dropped."""

    id: str
    request: RunRequest | None
    parent: str | None
    ids: list[int]
    """Of the first prompt."""
    prompts: int
    has_gradients: bool
    updates: int
    values: int
    steps: int
    path: str
    edits: list[dict[str, Any]]
    """The address and the number of each edit."""


def find_buffers(arrays: Any) -> dict[int, int]:
    """Returns the bytes of each buffer that the arrays lie in, by identity: a view has that of its base."""
    found = {}
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        found[id(owner)] = owner.nbytes
    return found
