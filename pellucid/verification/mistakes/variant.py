"""A program with a mistake in it: the steps and tables that replace others, and the ways to make them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pellucid.config import ModelConfig
from pellucid.reference.op import Array, Op, Reads, everything
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.tape import Step, Tape


@dataclass(frozen=True)
class Program:
    """A tape, and the config that it was written from where that is known."""

    tape: Tape
    config: ModelConfig | None = None

    def steps(self, op: str = "", ending: str = "") -> Iterator[Step]:
        """Yields the steps of the forward pass with this operation, or whose names have this ending."""
        for name, step in self.tape.steps.items():
            if step.phase == "fwd" and op in ("", step.op.name) and name.endswith(ending):
                yield step


@dataclass(frozen=True)
class Variant:
    """A program with a mistake: the steps that replace others, and the wrong tables that they read. `note`
    says what replaces what: "gelu for silu"."""

    note: str = ""
    steps: Mapping[str, Step] = field(default_factory=dict)
    tables: Mapping[str, Array] = field(default_factory=dict)

    def rerun(self, tape: Tape) -> dict[str, Array]:
        """Returns every value of the program with the mistake in it."""
        values, changed = tape.values | dict(self.tables), set(self.tables)
        for name, right in tape.steps.items():
            step = self.steps.get(name, right)
            if name in self.steps or not changed.isdisjoint(step.inputs):
                values[name] = step.run(values)
                changed.add(name)
        return values


Mistake = Callable[[Program], Iterator[Variant]]
"""Yields variants, the likeliest first; none where the mistake does not apply."""


def in_every_step(change: Callable[[Step, Tape], Step | None]) -> Mistake:
    """Returns the mistake made in every step to which it applies."""

    def mistake(program: Program) -> Iterator[Variant]:
        steps = {
            name: wrong for name, step in program.tape.steps.items() if (wrong := change(step, program.tape))
        }
        if steps:
            yield Variant("", steps)

    return mistake


def in_every_reading(change: Callable[[Step, Tape], Iterator[tuple[str, Step]]]) -> Mistake:
    """Returns the mistake with one variant per note, each made in every step to which it applies."""

    def mistake(program: Program) -> Iterator[Variant]:
        by_note: dict[str, dict[str, Step]] = {}
        for name, step in program.tape.steps.items():
            for note, wrong in change(step, program.tape):
                by_note.setdefault(note, {})[name] = wrong
        for note, steps in by_note.items():
            yield Variant(note, steps)

    return mistake


def base_name(name: str) -> str:
    """Returns the name of a value without the number of its update: X for X@1."""
    return name.partition("@")[0]


def replace_forward(
    step: Step, forward: Callable[..., Any], reads: Callable[..., Reads] = everything
) -> Step:
    """Returns the step with other arithmetic, in which a cell reads the cells that `reads` gives."""
    return replace(step, op=Op(step.op.name, forward, reads, step.op.formula))


def read_instead(step: Step, of: str, other: str) -> Step:
    """Returns the step that reads another value in place of one of its inputs."""
    return replace(step, inputs=tuple(other if name == of else name for name in step.inputs))


def pass_through(step: Step, kept: str) -> Step:
    """Returns a step that passes one value on unchanged."""
    return replace(step, op=add, inputs=(kept,), attrs={})


def replace_table(program: Program, table: str, wrong: Array, note: str = "") -> Variant:
    """Returns the program where every reader of a table reads a wrong one."""
    new = f"{table} (wrong)"
    steps = {
        name: replace(step, inputs=tuple(new if read == table else read for read in step.inputs))
        for name, step in program.tape.steps.items()
        if table in step.inputs
    }
    return Variant(note, steps, {new: wrong})


def describe(mistake: str, variant: Variant) -> str:
    """Returns a mistake and what replaces what in it: "norm eps: 1e-06 for 1e-05"."""
    return f"{mistake}: {variant.note}" if variant.note else mistake
