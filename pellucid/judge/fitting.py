"""Which usual mistake gives these numbers: the steps that end in a bug, recomputed with each mistake in them.

Their own numbers go in, so a mistake fits if nothing but rounding is left of the bug.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import PellucidError
from pellucid.explain.trace import Trace
from pellucid.judge.judge_run import RecordedValue, judge_run
from pellucid.judge.mistakes import MISTAKES, Program, Variant, describe
from pellucid.judge.verdict import Judged, Replayed
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape

MOST_NUMBERS = 3 * 10**8
"""A span that reads more numbers than this, weights included, is not recomputed some fifty times."""

BREAKS = (ValueError, IndexError, TypeError, KeyError, AttributeError)


def explain_bug(
    done: Replayed, trace: Trace, recorded: Mapping[str, RecordedValue], config: ModelConfig | None = None
) -> Replayed:
    """Adds the usual mistakes that would give the numbers of the first bug, the best fit first."""
    if not done.bugs or done.bugs[0].given or done.bugs[0].layout:
        return done
    return replace(done, explained_by=tuple(fitting_mistakes(trace, recorded, done.bugs[0].name, config)))


def fitting_mistakes(
    trace: Trace, recorded: Mapping[str, RecordedValue], bug: str, config: ModelConfig | None = None
) -> list[str]:
    """Returns the mistakes under which the value of that name follows from their recorded values."""
    tape, name = trace.tape, trace.tape.resolve(bug)
    theirs = {tape.resolve(other): value for other, value in reversed([*recorded.items()])}
    theirs[name] = recorded[bug]
    right = _span(tape, name, theirs)
    if sum(right.values[read].size for step in right.steps.values() for read in step.inputs) > MOST_NUMBERS:
        return []
    misfit = _misfit(right, name, theirs)
    found: list[tuple[float, str]] = []
    for mistake in MISTAKES:
        for variant in _variants(mistake, Program(tape, config)):
            if variant.steps.keys().isdisjoint(right.steps):
                continue
            judged = _judge(_span(tape, name, theirs, variant), name, theirs, misfit)
            if judged and not judged.is_bug:
                found.append((judged.share, describe(mistake, variant)))
    return list(dict.fromkeys(mistake for _, mistake in sorted(found, key=lambda fit: fit[0])))


def _variants(mistake: str, program: Program) -> list[Variant]:
    try:
        return [*MISTAKES[mistake](program)]
    except (PellucidError, *BREAKS):
        return []  # a stranger's trace may use our names for other things


def _span(tape: Tape, name: str, theirs: Mapping[str, RecordedValue], variant: Variant | None = None) -> Tape:
    """The program from what they recorded to one value, with a mistake in it."""
    variant = variant or Variant()
    steps, values = {**tape.steps, **variant.steps}, {**variant.tables, **tape.values}
    needed = {name}
    for read in reversed(values):
        if read in needed and read in steps and (read == name or read not in theirs):
            needed.update(steps[read].inputs)
    span = Tape(tape.dtype)
    span.about, span.aliases = tape.about, {}
    for read in values:
        if read in needed:
            span.values[read], span.roles[read] = values[read], tape.roles.get(read, "leaf")
            if read in steps and (read == name or read not in theirs):
                span.steps[read] = steps[read]
    return span


def _misfit(span: Tape, name: str, theirs: Mapping[str, RecordedValue]) -> tuple[int, float]:
    """How many cells are finite on one side alone, and the largest difference of the others."""
    values = dict(span.values) | {read: theirs[read].value for read in span.values if read in theirs}
    with np.errstate(all="ignore"):
        for step in span.steps.values():
            values[step.name] = step.run(values)
        got, made = theirs[name].value, values[name]
        finite = np.isfinite(got) & np.isfinite(made)
        strange = ~finite & ~_same(got, made)
        return int(strange.sum()), float(np.abs(np.where(finite, got - made, 0.0)).max(initial=0.0))


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _judge(
    span: Tape, name: str, theirs: Mapping[str, RecordedValue], misfit: tuple[int, float]
) -> Judged | None:
    """The verdict on the value with the mistake in the span, if it comes nearer at all."""
    try:
        strange, apart = _misfit(span, name, theirs)
        if (strange, 2 * apart) > misfit:
            return None
        known = {read: theirs[read] for read in span.values if read in theirs}
        return next(iter(judge_run(Trace(span), known, only=name).values), None)
    except (PellucidError, *BREAKS):
        return None  # the mistake cannot be made in a program of these shapes
